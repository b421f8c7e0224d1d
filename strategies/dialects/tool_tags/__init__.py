"""One tag per tool, its parameters as children: what agents of tags read and what is written by default.

In: a cursor on an opener. Out: drafts.

Rights: pure.
"""
