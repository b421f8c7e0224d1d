"""Answers read once more, long after they went out: what trying, replaying and exporting have in common.

In: a text with tools and settings, or a record of one. Out: what it is read as, and why. Nothing is stored.

Rights: edge: the environment, and the packages that are installed with strategies in them.
"""
