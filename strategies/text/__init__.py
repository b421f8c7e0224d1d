"""Text that comes in pieces, and the tolerant readers of JSON, Python, YAML and shell lines.

In: pieces of text, cut anywhere. Out: values, which do not depend on the cuts.

Rights: pure.
"""
