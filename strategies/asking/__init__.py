"""What a model is told of the past and of its mistakes: history in its dialect, broken calls healed, asking again.

In: a conversation; a broken answer. Out: messages for the model; the request that asks again. `history` and
`past_calls` are the past, `ask_again` the mistakes, `intent` requests without tools; `renderers` finds the dialect to
write in.

Rights: pure.
"""
