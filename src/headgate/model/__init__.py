"""The nouns of Headgate: values, conditions, event types, rules, events, changes and states.

Guarantees: standard library only, frozen values, illegal shapes refused at construction.
Leaves out: text syntax (`lang`), meaning (`decide`), storage (`ledger`).
"""
