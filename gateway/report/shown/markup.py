"""Text as it may stand in HTML: whatever it holds, it stays text."""

from html import escape

from gateway.report.words import visible

__all__ = ["attribute", "escaped"]


def escaped(text: str) -> str:
    """The text between tags, or within a quoted attribute."""
    # Controls first: XML takes most of them in no form at all (https://www.w3.org/TR/xml/#charsets).
    return escape(visible(text), quote=True)


def attribute(name: str, value: str) -> str:
    """One attribute with its quotes."""
    return f'{name}="{escaped(value)}"'
