"""The settings: read from the environment, files and TOML, all checked, all faults told at once.

In: names and values. Out: frozen settings, or every fault. `declared` has a row for each setting, `declarations` joins
its groups, `routes` reads the tables of model servers and models.

Rights: edge: files.
"""
