"""From a request to publish to the event log: submissions, and the one writer of a gateway."""
