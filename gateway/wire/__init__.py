"""OpenAI's wire: bytes of requests, answers and event streams, taken apart and written again.

In: bytes. Out: bytes, and what stands in them. What is not understood leaves as the bytes it came in.

Rights: pure.
"""
