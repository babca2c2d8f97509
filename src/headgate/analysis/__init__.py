"""What can be said of a policy: explanations, plans, effects, restrictions, proofs.

Guarantees: pure functions over the same `State` that `decide` reads; nothing here decides anything.
"""
