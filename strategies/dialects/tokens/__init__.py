"""Dialects of special tokens with a syntax of their own.

In: a cursor on an opener. Out: drafts.

Rights: pure.
"""
