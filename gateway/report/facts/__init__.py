"""What figures are made of: what one record says by itself, shares and sketches, and the tree that a report is.

In: one record, or numbers. Out: plain values.

Rights: pure.
"""
