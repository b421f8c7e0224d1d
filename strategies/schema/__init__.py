"""What a tool declares: its names, its parameters and their types; texts brought to them.

In: a declared schema, and values. Out: values that fit it, or why they cannot. Linear in schema and value. `names` says
which tool or parameter is meant, `known_tools` which tools are known undeclared, `tool_schema`, `document` and `values`
what fits; nothing here writes a schema or a sample.

Rights: pure.
"""
