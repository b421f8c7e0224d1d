"""Comments say why: what they name elsewhere can be found there."""

import io
import re
import tokenize
from functools import cache
from pathlib import Path

from tests.support.sources import is_address

ROOT = Path(__file__).parents[1]
ADDRESS = re.compile(r"https?://[^\s()]+?(?=[.,;:]?(?:[\s()]|$))")
BARE = re.compile(r"(?<![\w/])[\w.-]+/[\w.-]+#\d+")


@cache
def comments() -> list[tuple[str, str]]:
    found = []
    for package in ("gateway", "strategies"):
        for path in sorted((ROOT / package).rglob("*.py")):
            words = io.StringIO(path.read_text(encoding="utf-8")).readline
            found += [
                (path.relative_to(ROOT).as_posix(), token.string)
                for token in tokenize.generate_tokens(words)
                if token.type == tokenize.COMMENT
            ]
    return found


def test_every_address_in_a_comment_can_lead_somewhere() -> None:
    named = [(path, address) for path, comment in comments() for address in ADDRESS.findall(comment)]
    assert len(named) > 100
    assert [each for each in named if not is_address(each[1])] == []


def test_a_thread_is_named_by_its_address() -> None:
    assert [(path, comment) for path, comment in comments() if BARE.search(comment)] == []
