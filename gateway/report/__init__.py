"""What the records of a period say: one pass, bounded memory, one tree of figures.

In: records. Out: figures, gates and their verdict; `shown` says them to people. `figures` reads, with
`tallies` that count, `tree` is the result, `readiness` the next step; `cases` and `turns` read what was said.

Rights: pure.
"""
