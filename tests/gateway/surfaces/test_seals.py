"""Seals open for whom they were made, as they were made, and for nobody and nothing else."""

import zlib
from base64 import urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.surfaces.seals import MAX_SEAL, Seals

SEALS = Seals(b"k" * 32, "alice")
VALUES = st.dictionaries(st.text(max_size=8), st.text(max_size=40) | st.integers(-5, 5) | st.none(), max_size=4)


def sealed(value: dict[str, object], seals: Seals = SEALS, purpose: str = "") -> str:
    told = seals.seal(value, purpose=purpose)
    assert told is not None
    return told


@given(VALUES)
def test_what_was_sealed_comes_back(value: dict[str, object]) -> None:
    assert SEALS.open(sealed(value)) == value
    assert sealed(value).startswith("tg1.")


@pytest.mark.parametrize("other", [Seals(b"x" * 32, "alice"), Seals(b"k" * 32, "bob"), Seals(b"k" * 32, "")])
def test_nobody_else_opens_it(other: Seals) -> None:
    assert other.open(sealed({"text": "mine"})) is None


def test_it_opens_for_its_purpose_alone() -> None:
    seal = sealed({"text": "a summary"}, purpose="compaction")
    assert SEALS.open(seal) is None
    assert SEALS.open(seal, purpose="reasoning") is None
    assert SEALS.open(seal, purpose="compaction") == {"text": "a summary"}


def test_credential_and_purpose_do_not_run_together() -> None:
    assert Seals(b"k", "ab").open(sealed({}, Seals(b"k", "a"), "bc"), purpose="c") is None


@given(VALUES, st.data())
def test_an_altered_one_does_not_open(value: dict[str, object], data: st.DataObject) -> None:
    seal = sealed(value)
    at = data.draw(st.integers(0, len(seal) - 1))
    other = data.draw(st.characters(min_codepoint=33, max_codepoint=300).filter(lambda char: char != seal[at]))
    opened = SEALS.open(seal[:at] + other + seal[at + 1 :])
    # The last letter may hold bits that no byte comes from.
    assert opened is None or (at >= len(seal) - 4 and opened == value)


@pytest.mark.parametrize("blob", [None, 7, {}, "", "tg1.", "tg1.####", "tg1." + "A" * 64, "gAAAAABm-foreign", "tg1.é"])
def test_what_is_no_seal_is_nothing(blob: object) -> None:
    assert SEALS.open(blob) is None


def test_what_is_too_large_has_no_seal() -> None:
    assert SEALS.seal({"text": "x" * MAX_SEAL}) is None
    assert SEALS.open("tg1." + "A" * MAX_SEAL) is None


def test_what_cannot_be_read_again_has_no_seal() -> None:
    assert SEALS.seal({"text": "\ud83d"}) is None


def test_what_unpacks_to_more_than_a_seal_may_hold_is_not_unpacked() -> None:
    packed = zlib.compress(b'{"text": "' + b"x" * (8 * MAX_SEAL) + b'"}')
    forged = "tg1." + urlsafe_b64encode(SEALS._check(packed, "") + packed).decode()
    assert len(forged) < MAX_SEAL
    assert SEALS.open(forged) is None


def test_a_seal_shows_no_key() -> None:
    assert "kkk" not in repr(SEALS)
    assert "alice" not in repr(SEALS)
