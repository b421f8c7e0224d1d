"""The streaming reader: text in pieces becomes text and calls.

In: pieces of one choice's text. Out: events; joined, their raw text is the input, whatever the cuts. What is held is
only what may still become a call.

Rights: pure.
"""

from strategies.reading.factory import reader_factory

__all__ = ["reader_factory"]
