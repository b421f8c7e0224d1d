"""A report as people see it: on a terminal, as Markdown, as one HTML file.

In: the tree of figures. Out: text. Whatever a record holds, it stays text.

Rights: pure.
"""
