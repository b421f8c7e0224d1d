"""The vocabulary of the house: tools, events, errors, limits, ports. Imports nothing but the standard library and attrs."""
