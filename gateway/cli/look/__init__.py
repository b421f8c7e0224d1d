"""Commands that only look: settings, readings, dialects, reports.

In: settings, answers, records. Out: text. Nothing is changed.

Rights: edge: the terminal.
"""
