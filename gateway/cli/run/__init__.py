"""Commands that run the gateway or speak to one that runs.

In: settings. Out: a running gateway; words about one.

Rights: edge: the terminal, processes and sockets.
"""
