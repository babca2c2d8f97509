"""Role services of a domain over HTTP, events about audited roles, and roles across domains (OASIS 4.9, 4.10).

`following` is a process of its own, the follower, and a client of other domains; the rest is part of a gateway.
"""
