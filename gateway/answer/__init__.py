"""One request's answer without sockets: the upstream's bytes in, the client's bytes and the facts out.

An event leaves as soon as all of its own characters are decided. Where nothing is recognised, the bytes are the
upstream's own. `stream` and `body` are two shells around `choice`, which knows one choice of an answer whatever its
shape: its text goes through one list of `stages`, its structured calls through `held_calls` in a stream and as a whole
in a body. `queue` is what is held of a stream, `works` what is left to do of it, `endings` how it comes to its ends,
`second_answer` what is asked again. Where things are added:

- what is read from text, or held because of it: a stage in `stages`, and its place in the choice's list;
- structured calls: the choice, once they are whole (`Choice.translation` is such a step); while they stream,
  `held_calls.HeldCalls.take`, which may hold an event, mend it, or let it go;
- what only the end of an answer tells: `Choice.finish`, as both shells call it before they look for a broken call;
- an answer to be asked again: a `BrokenCall` given to `SecondRound`; `StreamExchange.has_spoken` says of a stream
  whether the client has seen any of it; what the model server's own parser swallowed, `rescue`.

Rights: pure.
"""
