"""What the clients see: the same as their rules, restated elsewhere, say."""

import random
from collections.abc import Callable

import pytest

from strategies.clients.client_parser import Rules, see
from strategies.clients.cline import CLINE
from strategies.clients.roo import KILO, ROO
from tests.support.client_parsers import PARAMETERS, parse
from tests.support.cost import assert_linear

PIECES = (
    *("<write_to_file>", "</write_to_file>", "<list_files>", "</list_files>", "<path>", "</path>", "<content>"),
    *("</content>", "<recursive>", "</recursive>", "x", "\n", " ", "\u00a0", "\ufeff", "\x1f", "<", ">", "/", "</"),
)
TOOLS = ("write_to_file", "list_files", "attempt_completion")


@pytest.mark.parametrize("profile", [ROO, KILO, CLINE], ids=lambda profile: profile.id)
def test_it_is_what_the_client_itself_would_see(profile):
    rng = random.Random(profile.id)
    calls = 0
    for _ in range(2000):
        text = "".join(rng.choice(PIECES) for _ in range(rng.randint(1, 24)))
        if rng.random() < 0.7:
            text = f"<write_to_file>\n<path>a</path>\n<content>{text}</content>\n</write_to_file>"
        uses = [use for use in parse(text, profile.id, tools=TOOLS) if not use.partial]
        seen = see(text, profile.rules, TOOLS, PARAMETERS)
        assert (seen.name, seen.values) == (uses[0].name, uses[0].params) if seen else uses == [], text
        calls += seen is not None
    assert calls > 500


def test_a_value_beyond_the_bound_is_lost():
    text = "<list_files>\n<path>{}</path>\n</list_files>"
    rules = Rules(max_value=20)
    for value, kept in (("x" * 13, {"path": "x" * 13}), ("x" * 14, {}), ("\U0001f600" * 7, {})):
        seen = see(text.format(value), rules, TOOLS, PARAMETERS)
        assert seen is not None
        assert seen.values == kept


def test_a_files_outer_fence_and_its_line_numbers_are_taken_off():
    text = "<write_to_file>\n<path>a</path>\n<content>\n{}\n</content>\n</write_to_file>"
    for written, kept in (
        ("```py\nx\n```", "x"),
        ("1 | a\n2 | b", "a\nb"),
        ("1 | a\nb", "1 | a\nb"),
        ("0 || a\n1 || b", "0 || a\n1 || b"),
        ("x```", ""),
    ):
        seen = see(text.format(written), ROO.rules, TOOLS, PARAMETERS)
        assert seen is not None
        assert seen.values["content"] == kept


@pytest.mark.cost
@pytest.mark.parametrize("piece", ["</content>", "<content>", "<path>", "</path>", "<", "x", "</write_to_file"])
def test_it_costs_linear_time(piece):
    def seeing(size: int) -> Callable[[], object]:
        content = piece * (size // len(piece))
        text = f"<write_to_file>\n<path>a</path>\n<content>{content}</content>\n</write_to_file>"
        return lambda: see(text, KILO.rules, TOOLS, PARAMETERS)

    assert_linear(seeing, 1 << 16)
