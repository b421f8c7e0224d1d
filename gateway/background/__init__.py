"""What goes on beside the requests: records are written, lessons and the rollout shared, secrets and sessions kept.

In: what requests leave behind. Out: what the next ones are told. Never on the way of a request. `tick` is the loop,
`recorder` the queue of records, `rollout_agent` this process's part in the rollout, `garbage` a look for cycles.

Rights: edge: the store and the loop.
"""
