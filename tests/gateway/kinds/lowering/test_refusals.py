"""The table of what each server refuses: whole, and at one with itself."""

import pytest

from gateway.kinds.lowering.refusals import KEPT_BY_GEMINI, LOWERABLE, REFERENCES, REFUSALS, UNIONS_REFUSED_AT_ROOT
from gateway.kinds.lowering.walk import PLACES
from tests.support.gemini_server import SCHEMA as TAKEN_BY_GEMINI


@pytest.mark.parametrize("keyword", REFUSALS)
def test_what_goes_together_is_in_the_table(keyword: str) -> None:
    together = REFUSALS[keyword].together
    assert not together or keyword in together
    assert set(together) - {"items"} <= LOWERABLE


def test_what_a_schema_is_made_of_is_never_taken_out() -> None:
    assert LOWERABLE.isdisjoint({"type", "properties", "required", "items", "description"})
    assert set(PLACES) - {"properties", "items"} <= LOWERABLE


def test_what_gemini_keeps_it_takes() -> None:
    assert set(KEPT_BY_GEMINI) <= TAKEN_BY_GEMINI
    assert not TAKEN_BY_GEMINI & set(REFERENCES)


def test_no_union_stands_at_anthropics_root() -> None:
    assert set(UNIONS_REFUSED_AT_ROOT) == {"allOf", "anyOf", "oneOf"}
