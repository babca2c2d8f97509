"""Where a domain keeps what its processes share: SQLite files on one machine, or a PostgreSQL database.

`files` opens SQLite files, `postgres` a database; `shared` is the one interface of what gateways share, over either.
"""
