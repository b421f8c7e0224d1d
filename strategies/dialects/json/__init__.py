"""Dialects whose calls are JSON: in tags, behind tokens, in fences, or bare.

In: a cursor on an opener. Out: drafts.

Rights: pure.
"""
