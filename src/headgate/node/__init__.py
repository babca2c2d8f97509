"""What a node is made of, below its gateways: settings, files, processes, logs and health.

Guarantees: a domain's directory says everything about it (`config`, `domain`), and every process of a node is started,
watched and ended in one way (`topology`, `processes`). Small SQLite files hold what processes share beside ledger, log
and deliveries: `cursors`, `peers`, `statement_register`.
"""
