"""A chat request from its body to its last byte.

In: the state of a request. Out: the client's response. `handler` is the way through, `prepare` and `enrolment` come
before the model server, `opening` begins its answer, `pump` and `watched` come behind it, `repeat` asks again, `rescue`
saves a turn that the server's own parser swallowed.

Rights: edge: request and upstream.
"""
