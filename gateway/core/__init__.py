"""What every room speaks of: events, records, errors, limits, tools, and the ports that are asked for.

In and out: plain values. Nothing here knows a wire, a dialect or a model server.

Rights: pure.
"""
