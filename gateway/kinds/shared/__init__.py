"""What kinds of model servers have in common: the port they implement, dialogues, answers, parts of requests, faults.

In: a server's JSON. Out: pieces of OpenAI chat. Whatever is wrong with it is `UpstreamBadReply`, and nothing else.
`port` says what a kind is.

Rights: pure.
"""
