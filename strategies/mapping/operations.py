"""What the tools of clients and of models do to files, said once for all of them."""

from typing import TypeGuard

from attrs import frozen

from strategies.base import Refusal

__all__ = [
    "Create",
    "Delete",
    "Insert",
    "Lines",
    "Listing",
    "Operation",
    "Replace",
    "View",
    "as_bare_text",
    "as_lines",
    "as_text",
    "is_number",
    "of_text",
    "view",
]


@frozen
class View:
    """Show a file, or its lines from `first` to `last`, both counted from 1; no `last` is to the end."""

    path: str
    first: int | None = None
    last: int | None = None


@frozen
class Listing:
    """Show what a directory holds."""

    path: str


@frozen
class Create:
    """Write a whole file, new or over another."""

    path: str
    content: str


@frozen
class Replace:
    """Put `new` where `old` stands, which must stand exactly once."""

    path: str
    old: str
    new: str


@frozen
class Lines:
    """Put whole lines where other whole lines stand, which must stand exactly once."""

    path: str
    old: tuple[str, ...]
    new: tuple[str, ...]
    placed: bool = False
    """Their place was also told in another way, which only a tool that wants them to stand once can do without."""


@frozen
class Insert:
    """Put lines behind line `after`, 0 being the start; `text` does not hold the end of its last line."""

    path: str
    after: int
    text: str


@frozen
class Delete:
    """Remove a file."""

    path: str


Operation = View | Listing | Create | Replace | Lines | Insert | Delete


def view(path: str, first: int | None, last: int | None) -> View:
    """The view of these lines; from the first to the end is the whole file."""
    if last is None:
        return View(path, None if first == 1 else first)
    return View(path, first or 1, last)


def is_number(value: object) -> TypeGuard[int]:
    """Whether this is a whole number; `true` is none."""
    return isinstance(value, int) and not isinstance(value, bool)


def as_lines(change: Replace) -> Lines | Refusal:
    """The same change as one of whole lines, if it is one wherever `old` begins and ends with a line."""
    old, new = change.old.replace("\r\n", "\n"), change.new.replace("\r\n", "\n")
    if "\r" in old or "\r" in new:
        return Refusal("The text holds a carriage return that ends no line, which this edit tool cannot express.")
    if old.endswith("\n"):
        if new and not new.endswith("\n"):
            return Refusal(
                "The old text ends with a line break and the new one does not. Only whole lines can be replaced here: "
                "end both with a line break, or neither."
            )
        return Lines(change.path, _split(old[:-1]), _split(new[:-1]) if new else ())
    if not new:
        return Refusal(
            "To delete whole lines, end the old text with their line break; to leave an empty line in their place, "
            "include a neighbouring line in both texts."
        )
    return Lines(change.path, _split(old), _split(new))


def as_text(change: Lines) -> Replace:
    """The same change as one of text, with the ends of its lines."""
    return Replace(change.path, _joined(change.old), _joined(change.new))


def as_bare_text(change: Lines) -> Replace:
    """The same change without the end of its last line, where that says the same."""
    # An empty last line says nothing by itself: only its line break shows that there is one.
    if not change.new or not change.old[-1]:
        return as_text(change)
    return Replace(change.path, "\n".join(change.old), "\n".join(change.new))


def of_text(change: Replace) -> Lines | None:
    """A change of text that is one of whole lines wherever it stands; `None` where only its place would tell."""
    ends = change.old.endswith("\n") and (not change.new or change.new.endswith("\n"))
    # A text that begins within a line may end within one: whether these are whole lines, only the file would tell.
    if not ends or "\r" in change.old or "\r" in change.new:
        return None
    return Lines(change.path, _split(change.old[:-1]), _split(change.new[:-1]) if change.new else ())


def _split(text: str) -> tuple[str, ...]:
    return tuple(text.split("\n"))


def _joined(lines: tuple[str, ...]) -> str:
    return "".join(f"{line}\n" for line in lines)
