"""JSON Schema for servers that understand less of it.

In: a schema. Out: one that allows at least all that the original allows: with a plain object at its root (`rooted`),
in Gemini's words (`openapi`), or without the keywords that a server's owner names (`without`). `refusals` is the one
table of what each server refuses, `walk` how a schema is gone through. Bounded in depth and size.

Rights: pure.
"""
