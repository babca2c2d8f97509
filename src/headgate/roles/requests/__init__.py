"""What a batch makes of roles: requests carried out, and the state that follows (OASIS 3 and 4)."""
