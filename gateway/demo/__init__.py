"""Model servers that are only a script, for trying the gateway without one.

In: chat requests. Out: scripted answers, native and in several dialects.

Rights: edge: sockets in.
"""
