"""Kinds of model servers: each turns OpenAI chat into its server's own wire and back, without a socket.

In: a chat request; a server's bytes. Out: that server's request; OpenAI's bytes. `rows` is the table of kinds, a kind
is a room with a dialogue, and what several kinds need stands in `shared`.

Rights: pure.
"""
