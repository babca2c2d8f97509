"""Every limit, by name. Past one of them a request is refused with a message that names it."""

MAX_ATTRIBUTES = 200
"""Attributes of one event type, inherited ones included."""

MAX_EXPRESSION_CHARS = 10_000
"""Characters of one filter or condition."""

MAX_EXPRESSION_DEPTH = 64
"""Nesting of `not`, parentheses, `and` and `or` in one expression."""

MAX_CLAUSES = 256
"""Clauses of a filter or condition in disjunctive normal form."""

MAX_CLAUSE_ATOMS = 256
"""Atoms in one clause."""

MAX_NAME_CHARS = 200
"""Characters of any name: type, attribute, principal, group, relation, rule, subscription."""

MAX_TEXT_BYTES = 1_000_000
"""UTF-8 bytes of one string or bytes value of an event."""

MAX_GROUP_DEPTH = 32
"""Groups nested in groups."""
