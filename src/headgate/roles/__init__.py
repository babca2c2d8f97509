"""Role services: who gains a name, on what it rests, and what falls with it (OASIS 2-4)."""
