"""OpenAI Responses for clients: Codex, and whatever new code of OpenAI's SDKs asks.

In: a Responses request; the chat answer's bytes. Out: a chat request; events of the Responses API, or one response
object. `ask` and `items` read requests, `tools` what they declare, `telling` tells answers, `stored` is what is kept.

Rights: pure.
"""
