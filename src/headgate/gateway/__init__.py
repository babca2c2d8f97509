"""The gateway processes of a node: where clients come in.

    http         requests and answers: routes, sessions, limits
    publishing   from a request to the event log
    delivery     from the delivery store to readers
    authority    signed statements, what is issued and what is revoked
    roles        role services and their certificates, also across domains

Guarantees: what is acknowledged is durable. `runtime` holds everything that one process has.
"""
