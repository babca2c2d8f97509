"""What signed statements come to: chains of certificates, what they reduce to, and which of them stand.

Guarantees: pure functions; what was signed and by whom is verified before anything comes here (`trust`).
"""
