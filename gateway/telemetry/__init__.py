"""The log and the metrics: every metric declared once, every secret taken out of every line.

In: names, labels and fields. Out: lines and series. Labels are bounded. `metrics` is the table, `series` the numbers,
`labels` the bound; `logs` and `redaction` make a line.

Rights: edge: the log and the registry.
"""
