"""Toolgate: the gateway between coding agents and models that write their tool calls as text."""

__version__ = "0.3.0"
