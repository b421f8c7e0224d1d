"""The built-in strategies, and the factory that chooses one for each request.

In: a request, its model, its client, what was learned. Out: what is sent, and how the answer is read.

Rights: pure.
"""
