"""Clients that read their calls from tags in the text: who they are, what they can read, how a call is said to them.

In: a request; a call. Out: the client's profile; its own markup. `roo` and `cline` hold the profiles,
`client_parser` reads as they do.

Rights: pure.
"""

from strategies.clients.recognition import recognise
from strategies.clients.text_client import TextClient

__all__ = ["TextClient", "recognise"]
