"""Deciding a batch of events against an index: `decide.deliver` over columns."""
