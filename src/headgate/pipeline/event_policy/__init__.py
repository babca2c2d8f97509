"""The event policy in columns (OASIS 7.4): what hangs on the event, on the client, and on both."""
