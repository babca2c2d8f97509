"""Commands about a node: `init`, `up`, `doctor`, `peer`."""
