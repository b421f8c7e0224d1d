"""The vocabulary of the house: tools, events, errors, limits, ports. Imports only the standard library and attrs."""
