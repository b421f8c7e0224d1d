"""The other routes under /v1: lists of models, ratings, and what is relayed unread.

In: the state of a request. Out: the client's response. `models` puts the lists of all servers into one, with the names
that rules give to models.

Rights: edge: request and upstream.
"""
