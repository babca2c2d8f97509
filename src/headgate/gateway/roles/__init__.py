"""The role services of a domain over HTTP, and the events about audited roles."""
