"""Processes: one alone, or a supervisor with its workers; their lanes, signals, status and end.

In: settings and signals. Out: exit codes. A supervisor of its own, as a server of workers for hire can hold neither
lanes that outlive a worker nor our drain. `alone` is the one, `supervisor` the other; `worker` is one from inside,
`child` the same from outside, `channel` what they say, `lanes` the sockets that outlive them; `notify`, `status` and
`banner` tell others.

Rights: edge: processes.
"""
