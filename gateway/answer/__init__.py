"""One request's answer without sockets: the upstream's bytes in, the client's bytes and the facts out.

An event leaves as soon as all of its own characters are decided. Where nothing is recognised, the bytes are the
upstream's own. `stream` and `body` are the two shells, `choice` one choice of an answer, `stages` what it goes
through, `queue` what is held.

Rights: pure.
"""
