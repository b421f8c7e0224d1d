"""What all dialects are written with: what a dialect is, its markers, literal contexts, raw values, scores, provenance.

In: a cursor over the text. Out: drafts of calls, and what speaks for and against them. `raw_value`, `value_end` and
`closers` find the end of a value in passes over the text, `json_calls`, `json_payload` and `json_bodies` read JSON,
`lexicon`, `literal`, `inline` and `fences` where an opener counts, `confidence` and `provenance` what it is worth.

Rights: pure.
"""
