"""What the records of a period say: one pass, bounded memory, one tree of figures.

In: records. Out: figures, gates and their verdict; `shown` says them to people. `gathering` reads, `figures` and
`tallies` count, `tree` is the result, `readiness` the next step, `projection` what a canary would mean; `cases` and
`turns` read what was said.

Rights: pure.
"""
