"""The settings: read from the environment, files and TOML, all checked, all faults told at once.

In: names and values. Out: frozen settings, or every fault. `declarations` has one row for each setting,
`setting` what a row says, `values` the readers of single values.

Rights: edge: files.
"""
