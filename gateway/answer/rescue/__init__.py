"""Turns that the model server's own parser swallowed: what they look like, and what an answer is made of instead.

In: an error of the server, a whole answer, or the events of a stream. Out: the `Swallowed` turn, if it is one, and
the bytes that the client gets in its place. `faces` is the one table of what such turns look like, `lookout` watches a
stream until something of it can be seen, `remedies` reads the text of an error and makes answers of another question.

Rights: pure.
"""
