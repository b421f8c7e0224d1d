"""What the records of a period say: one pass, bounded memory, one tree of figures.

In: records. Out: figures, gates and their verdict. Four layers: `facts` of single records, `tallies` that add them up,
the document (`figures` makes it, `readiness` is its verdict), and `shown`, which says it to people. `cases`
takes stored answers for others to read again.

Rights: pure.
"""
