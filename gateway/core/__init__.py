"""What every room speaks of: events, records, errors, limits, tools, and the ports that are asked for.

In and out: plain values. Nothing here knows a wire, a dialect or a model server. `records` is what is stored, `reasons`
why a candidate stayed text, `origins` and `addresses` take apart what names a host or a store, `ports` is what the
inside asks of the world.

Rights: pure.
"""
