"""Keys: what opens the gateway, until when, and that nothing shows them."""

import hashlib
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.declared.keys import KeyRing

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)


def ring(value: str, content: str = "") -> KeyRing:
    return KeyRing.from_setting(value, read_file=lambda path: content)


def test_a_listed_key_opens_and_another_does_not():
    keys = ring("alpha, beta")
    assert keys.check("alpha", NOW)
    assert keys.check("beta", NOW)
    for token in ("", "alph", "alphabeta", "alpha,beta", "ALPHA", " alpha", "\ud800", "alpha\0"):
        assert not keys.check(token, NOW)


def test_an_empty_setting_is_an_open_ring_that_accepts_no_token():
    assert ring("").is_open
    assert not ring("").check("", NOW)


def test_a_hashed_key_opens_to_its_plain_text_only():
    digest = hashlib.sha256(b"alpha").hexdigest()
    keys = ring(f"sha256:{digest.upper()}")
    assert keys.check("alpha", NOW)
    assert not keys.check(digest, NOW)
    assert not keys.check(f"sha256:{digest}", NOW)


def test_a_key_file_has_comments_blank_lines_and_ends_of_life():
    keys = ring(
        "@keys",
        "# team keys\n\nalpha\r\n  beta expires=2026-11-18\nold expires=2026-11-17\nsoon expires=2026-11-18T12:00:00\n"
        "zoned\texpires=2026-11-18T13:00:00+02:00\nlater expires=2026-11-18T14:30:00+02:00  \n",
    )
    assert [keys.check(word, NOW) is not None for word in ("alpha", "beta", "old", "soon", "zoned", "later")] == [
        *(True, True, False, False, False, True)
    ]
    assert not keys.check("beta", NOW + timedelta(hours=12))
    assert keys.check("beta", NOW.astimezone(timezone(timedelta(hours=5))))


@pytest.mark.parametrize(
    "content",
    [
        "canary expires=tomorrow\n",
        "canary expires=2026-13-01\n",
        "canary expires=9999-12-31\n",
        "canary expires=2026-01-01 and more\n",
        "canary two\n",
        "sha256:canary\n",
        "canaré\n",
    ],
)
def test_a_faulty_line_is_named_by_number_and_not_repeated(content):
    with pytest.raises(ValueError, match="line 2: ") as caught:
        ring("@keys", f"good\n{content}")
    assert "canar" not in str(caught.value)


def test_every_faulty_line_is_named():
    with pytest.raises(ValueError, match=r"line 1: .*line 3: "):
        ring("@keys", "a b\nfine\nc d\n")


def test_a_ring_shows_neither_keys_nor_hashes():
    keys = ring("alpha")
    assert "alpha" not in repr(keys)
    assert hashlib.sha256(b"alpha").hexdigest()[:8] not in repr(keys) + repr(keys.keys[0])


@given(st.text(max_size=60))
def test_any_file_gives_a_ring_or_a_value_error(content):
    try:
        keys = ring("@keys", content)
    except ValueError:
        return
    assert not keys.check(content + "x", NOW)
