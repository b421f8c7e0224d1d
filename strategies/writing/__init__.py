"""Calls, results and tools as a model is shown them, each dialect in its own syntax.

In: tools, calls, results. Out: text that the dialect's own reader takes back. The same tools give the same text. A
renderer for each manner of dialect, `prompt` and `documentation` for the tools, `samples` for the values in examples.

Rights: pure.
"""
