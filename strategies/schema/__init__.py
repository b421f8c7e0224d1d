"""What a tool declares: its names, its parameters and their types; texts brought to them.

In: a declared schema, and values. Out: values that fit it, or why they cannot. Linear in schema and value.

Rights: pure.
"""
