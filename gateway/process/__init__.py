"""Processes: one alone, or a supervisor with its workers; their lanes, signals, status and end.

In: settings and signals. Out: exit codes. A supervisor of its own, as a server of workers for hire can hold neither
lanes that outlive a worker nor our drain.

Rights: edge: processes.
"""
