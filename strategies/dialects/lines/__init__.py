"""Calls that are lines: Python, ReAct, shell blocks, patches.

In: a cursor on an opener. Out: drafts.

Rights: pure.
"""
