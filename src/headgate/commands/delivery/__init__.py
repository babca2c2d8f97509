"""Reading deliveries: out of the store, or as they come, in the order and form in which readers get them.

`Feed` is the place of one reader of a subscription. Gateways push from it; `read_deliveries` reads all that there is by
it, for programs and tests that hold the domain themselves.
"""
