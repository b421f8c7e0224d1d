"""OpenAI's Responses API, for servers that speak nothing else.

In: a chat request; events of the Responses API. Out: a Responses request; OpenAI's chunks.

Rights: pure.
"""
