"""The credential record graph: what is believed, what follows from it, what falls with it (OASIS 4.6-4.8)."""
