"""Text that comes in small pieces, kept without the price of an object for each."""

__all__ = ["Pieces"]

_MANY = 256


class Pieces:
    """Grows by pieces; gives the whole text."""

    __slots__ = ("_large", "_small")

    def __init__(self, text: str = "") -> None:
        self._large: list[str] = [text] if text else []
        self._small: list[str] = []

    def add(self, text: str) -> None:
        self._small.append(text)
        # Python adds some fifty bytes to each text, however short it is.
        if len(self._small) >= _MANY:
            self._large.append("".join(self._small))
            self._small.clear()

    def text(self) -> str:
        return "".join((*self._large, *self._small))
