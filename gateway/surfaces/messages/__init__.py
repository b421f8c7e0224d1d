"""Anthropic's Messages as clients speak it, Claude Code among them.

In: a Messages request; the chat answer. Out: a chat request; blocks, streamed or whole. `surface` is what the gateway
asks, `history` and `tools` read a request, `telling` says an answer in blocks, `faults` an error.

Rights: pure.
"""
