"""Roles across domains: telling others of our records, and following theirs (OASIS 4.9, 4.10).

`process` is the follower, a process of its own and a client of other domains; the rest is part of a gateway.
"""
