"""JSON Schema for servers that understand less of it: said in other words (`walk`), or left out (`refusals`).

In: a schema. Out: one that allows at least all that the original allows. Bounded in depth and size.

Rights: pure.
"""
