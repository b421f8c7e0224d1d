"""Ids of calls: what they look like, what they tell, and whom they tell nothing."""

import re
import secrets
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.rollout.call_ids import CallIds, CallMark
from strategies.dialects.rows import TABLE

KEY = b"0123456789abcdef0123456789abcdef"
NAMES = ["native", "recovery", "xml_prompt", "text", "native", *(row.id for row in TABLE)]


def ids(key: bytes = KEY, names: list[str] = NAMES) -> CallIds:
    return CallIds(key, secrets.token_bytes, names=names)


def test_an_id_is_call_and_24_letters_and_digits() -> None:
    made = [ids().make(arm="live", strategy="recovery", dialect="hermes") for _ in range(200)]
    assert all(re.fullmatch(r"call_[A-Za-z0-9]{24}", one) for one in made)
    assert len(set(made)) == len(made)


def test_all_known_names_have_marks_of_their_own() -> None:
    maker = ids()
    for name in set(NAMES):
        mark = maker.read(maker.make(arm="live", strategy="recovery", dialect=name))
        assert mark is not None
        assert mark.dialect == name


@given(
    arm=st.sampled_from(["live", "control", "dry_run", "off"]),
    strategy=st.sampled_from(["native", "recovery", "xml_prompt"]),
    dialect=st.sampled_from([row.id for row in TABLE]),
    epoch=st.integers(0, (1 << 10) - 1),
)
def test_the_facts_come_back(arm: str, strategy: str, dialect: str, epoch: int) -> None:
    made = ids().make(arm=arm, strategy=strategy, dialect=dialect, epoch=epoch)  # type: ignore[arg-type]
    assert ids().read(made) == CallMark(arm=arm, strategy=strategy, dialect=dialect, epoch=epoch)  # type: ignore[arg-type]


def test_another_process_with_the_key_reads_it_but_for_names_it_does_not_know() -> None:
    made = ids().make(arm="live", strategy="a_plugin", dialect="hermes")
    assert ids().read(made) == CallMark(arm="live", strategy=None, dialect="hermes", epoch=0)


def test_another_key_reads_nothing() -> None:
    made = ids().make(arm="live", strategy="recovery", dialect="hermes")
    assert ids(b"another key").read(made) is None


@given(st.integers(0, 23), st.sampled_from(string.ascii_letters + string.digits))
def test_a_changed_letter_makes_it_foreign(place: int, letter: str) -> None:
    made = ids().make(arm="live", strategy="recovery", dialect="hermes")
    at = len("call_") + place
    changed = made[:at] + letter + made[at + 1 :]
    assert (ids().read(changed) is None) == (changed != made)


@pytest.mark.parametrize(
    "foreign",
    ["", "call_", "call_0", "call_" + "z" * 24, "call_" + "0" * 25, "call_" + "é" * 24, "toolu_" + "0" * 24, "0" * 29],
)
def test_ids_of_others_are_not_read(foreign: str) -> None:
    assert ids().read(foreign) is None


def test_the_same_facts_do_not_look_the_same() -> None:
    one, other = (ids().make(arm="live", strategy="recovery", dialect="hermes") for _ in range(2))
    assert sum(left == right for left, right in zip(one[5:], other[5:], strict=True)) < 12
