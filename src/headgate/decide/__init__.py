"""The reference semantics: what is true, who sees what, what is admitted and delivered, what a batch makes of a state.

Guarantees: pure functions of a `State` and an `Event`; design rules D1-D11, D13 and D14 by number. Spark must agree
with this package on every input.
Leaves out: speed, storage, text, signed statements (`authority`) and explanations (`analysis`).
"""
