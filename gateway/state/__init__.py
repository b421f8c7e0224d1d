"""The stores: memory, SQLite and Redis under one contract.

In: records and counts. Out: the same again. Losing the store costs records, which are counted, and never a request.

Rights: edge: the store.
"""
