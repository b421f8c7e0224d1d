"""What all dialects are written with: what a dialect is, its markers, literal contexts, raw values, scores, provenance.

In: a cursor over the text. Out: drafts of calls, and what speaks for and against them.

Rights: pure.
"""
