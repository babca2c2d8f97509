"""Commands about roles: enter and leave them, and look at the credential graph."""
