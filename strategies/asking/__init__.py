"""What a model is told of the past and of its mistakes: history in its dialect, broken calls healed, asking again.

In: a conversation; a broken answer. Out: messages for the model; the request that asks again.

Rights: pure.
"""
