"""Every textual form of a tool call: a module per family; `rows` is the table, in the order of trial.

In: a cursor that stands on an opener. Out: drafts. A dialect sees no cut and keeps no state.

Rights: pure.
"""
