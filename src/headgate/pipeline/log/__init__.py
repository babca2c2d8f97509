"""The embedded event log: appended batches, how they are encoded, how long they are kept."""
