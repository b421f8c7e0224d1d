"""The other routes under /v1: lists of models, ratings, and what is relayed unread.

In: the state of a request. Out: the client's response.

Rights: edge: request and upstream.
"""
