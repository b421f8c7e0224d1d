"""One page that shows what became of each answer: a process of its own over the store that gateways keep.

In: a browser on this machine, and the store. Out: the page, its files and its interface; labels and decisions, where
writing was not switched off. Nothing of it serves a gateway's client. `server` is the port, `door` says who may come
in, `reader` asks the store, `live` tells what is new; `filters`, `rows`, `detail` and `figures` say what is shown.

Rights: edge: sockets in, the store.
"""
