"""The stores: memory, SQLite and Redis under one contract.

In: records and counts. Out: the same again. Losing the store costs records, which are counted, and never a request.
`opening` chooses the store, `metered` tells of its failures, each once, `record_codec` and `trimming` are what all
stores do alike.

Rights: edge: the store.
"""
