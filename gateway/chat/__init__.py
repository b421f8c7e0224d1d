"""A chat request from its body to its last byte.

In: the state of a request. Out: the client's response. `handler` is the way through, `prepare` and `enrolment` come
before the model server, `pump` and `watched` behind it, `repeat` asks again.

Rights: edge: request and upstream.
"""
