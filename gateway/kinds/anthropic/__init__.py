"""Anthropic's Messages API and the servers that speak it.

In: a chat request; events of the Messages API. Out: a Messages request; OpenAI's chunks.

Rights: pure.
"""
