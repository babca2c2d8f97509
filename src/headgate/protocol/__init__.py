"""What clients and gateways say to each other: messages, problem documents.

Guarantees: below both, and in need of neither.
"""
