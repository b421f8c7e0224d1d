"""The command line: `root` knows the commands by name, each stands in a module that is loaded when it is asked for.

In: arguments, files, the store. Out: text, and the exit codes of `process.exits`.

Rights: edge: the terminal.
"""
