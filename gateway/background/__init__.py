"""What goes on beside the requests: records are written, lessons and the rollout shared, secrets and sessions kept.

In: what requests leave behind. Out: what the next ones are told. Never on the way of a request.

Rights: edge: the store and the loop.
"""
