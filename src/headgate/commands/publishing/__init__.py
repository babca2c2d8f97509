"""Publishing: what was sent (`submissions`), its way into the log (`attempts`), and the one writer of a stream.

`StreamWriter` is the only thing that admits events and appends them. Gateways run it on a thread behind a queue;
`LocalPublisher` runs it in place, for programs and tests that hold the domain themselves.
"""
