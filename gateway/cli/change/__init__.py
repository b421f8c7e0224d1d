"""Commands that change what the gateways share, or write files of it.

In: the store. Out: its next state, or documents. Every change has a reason and is written down.

Rights: edge: the terminal and the store.
"""
