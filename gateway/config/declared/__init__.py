"""The rows of the table of settings, a module for each group of the reference, and what they are written with.

In: words. Out: attributes, each with its name, default, help and reach. `setting` is what a row says, `values` has the
readers of single values, `keys` the ring of keys.

Rights: edge: files.
"""
