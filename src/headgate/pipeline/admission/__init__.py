"""Which of many events are accepted, over columns: `decide.publish` for a writer."""
