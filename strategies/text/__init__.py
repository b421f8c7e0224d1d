"""Text that comes in pieces, and the tolerant readers of JSON, Python, YAML and shell lines.

In: pieces of text, cut anywhere. Out: values, which do not depend on the cuts. `cursor` is what a grammar reads
through; it says what is there, not what it means.

Rights: pure.
"""
