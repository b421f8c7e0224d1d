"""What one pass over the records keeps: counters and bounded choices, one small class per part of the report.

In: records, one by one. Out: the parts of the tree that they add up to.

Rights: pure.
"""
