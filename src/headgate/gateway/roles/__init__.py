"""Role services of a domain over HTTP, events about audited roles, and roles across domains (OASIS 4.9, 4.10).

`process` is the follower of other domains, a process of its own and a client of theirs; the rest is part of a gateway.
"""
