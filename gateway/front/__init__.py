"""The listening side: routes, request ids, keys, errors in their shape, and what is told of each request at its end.

In: connections. Out: responses; a line of the log, the measures and a record for each request. `server` has the routes,
`middleware` what holds for all of them, `summary` what a request came to: line, measures and record are views of it.

Rights: edge: sockets in.
"""
