"""Which server is asked, how often, and how many may be asked at once.

In: what happened, and the time. Out: decisions. Time is an argument.

Rights: pure.
"""
