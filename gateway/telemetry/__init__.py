"""The log and the metrics: every metric declared once, every secret taken out of every line.

In: names, labels and fields. Out: lines and series. Labels are bounded.

Rights: edge: the log and the registry.
"""
