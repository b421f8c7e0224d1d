"""Structured calls held to what was declared: what a call is, whether it fits, what may be mended in it for certain.

In: a call's name and the text of its arguments, whole or their beginning. Out: its class and what is wrong with it in
words, its arguments as they certainly were meant, or that nobody can tell. `validity` says what JSON Schema says,
`judge` gives a call its class, `prefix` looks at arguments that have only begun, `mending` brings them right.

Rights: pure.
"""
