"""Commands about keys and signed statements: `keys`, `cert`, `identity`, `type`, `token`."""
