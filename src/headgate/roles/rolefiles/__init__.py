"""Rolefiles before they count: names, types, and what is wrong or probably not meant (OASIS 3)."""
