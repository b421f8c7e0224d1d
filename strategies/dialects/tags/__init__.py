"""Dialects whose parameters are elements with a name: functions, invokes, argument pairs.

In: a cursor on an opener. Out: drafts.

Rights: pure.
"""
