"""Calls, results and tools as a model is shown them, each dialect in its own syntax.

In: tools, calls, results. Out: text that the dialect's own reader takes back. The same tools give the same text.

Rights: pure.
"""
