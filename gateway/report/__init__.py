"""What the records of a period say: one pass, bounded memory, one tree of figures.

In: records. Out: figures, gates and their verdict; `shown` says them to people.

Rights: pure.
"""
