"""What the answers of a model tell of it and of its server, beside what its refusals teach.

In: what happened, and the time. Out: what follows from it. `rescues` turns that a server's parser swallowed,
`context_cut` prompts of which a server reads but a part.

Rights: pure.
"""
