"""Asking a model server: connections, tries, fail-over, and answers of other kinds translated.

In: a call and a deadline. Out: a reply of OpenAI's bytes, or one of the errors of `core`. Nothing is asked again once a
byte of the answer has gone out. `client` and `plain` hold the connections, `attempts` the tries,
`translated` the answers of other kinds, `reply_shape` answers that come otherwise than they were asked for.

Rights: edge: sockets out.
"""
