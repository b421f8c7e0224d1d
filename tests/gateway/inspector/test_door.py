"""Who may come in."""

import pytest

from gateway.inspector.door import KEY_S, Door

HOME = {"Host": "127.0.0.1:8790"}
ACTION = {
    **HOME,
    "Origin": "http://127.0.0.1:8790",
    "Content-Type": "application/json",
    "X-Toolgate-Inspector": "1",
    "Sec-Fetch-Site": "same-origin",
}


@pytest.fixture
def door():
    return Door(port=8790, now=iter(float(at) for at in (0, 1, 2, KEY_S + 9)).__next__)


@pytest.mark.parametrize("host", ["127.0.0.1:8790", "localhost:8790", "[::1]:8790", "LOCALHOST:8790"])
def test_its_own_names_come_in(door, host):
    assert door.stops("GET", {"Host": host}) is None


@pytest.mark.parametrize(
    "host",
    ["", "127.0.0.1", "127.0.0.1:80", "evil.test:8790", "localhost.evil.test:8790", "127.0.0.1:8790.", "0.0.0.0:8790"],
)
def test_other_names_are_misdirected(door, host):
    refusal = door.stops("GET", {"Host": host})
    assert refusal is not None
    assert refusal.status == 421


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {**HOME, "Sec-Fetch-Site": "cross-site"}, 403),
        ("GET", {**HOME, "Sec-Fetch-Site": "same-site"}, 403),
        ("GET", {**HOME, "Origin": "http://evil.test"}, 403),
        ("GET", {**HOME, "Origin": "http://localhost:8790"}, 403),
        ("GET", {**HOME, "Origin": "null"}, 403),
        ("DELETE", HOME, 405),
        ("OPTIONS", HOME, 405),
        ("POST", HOME, 403),
        ("POST", {**ACTION, "Content-Type": "text/plain"}, 415),
        ("POST", {**ACTION, "Content-Type": ""}, 415),
        ("POST", {key: value for key, value in ACTION.items() if key != "X-Toolgate-Inspector"}, 403),
        ("POST", {**ACTION, "Origin": "http://127.0.0.1:8791"}, 403),
        ("POST", {**ACTION, "Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
def test_what_no_page_of_ours_sends_is_refused(door, method, headers, status):
    refusal = door.stops(method, headers)
    assert refusal is not None
    assert refusal.status == status


def test_an_action_of_the_page_comes_in(door):
    assert door.stops("POST", {**ACTION, "Content-Type": "application/json; charset=utf-8"}) is None


def test_a_key_is_good_once(door):
    assert not door.trades("x" * 43)
    assert door.trades(door.key)
    assert not door.trades(door.key)


def test_a_key_is_good_for_five_minutes():
    times = [0.0]
    door = Door(port=1, now=lambda: times[0])
    times[0] = KEY_S + 1
    assert not door.trades(door.key)


def test_the_cookie_is_another_secret_and_new_at_each_start(door):
    other = Door(port=8790)
    assert len({door.key, door.cookie, other.key, other.cookie}) == 4
    assert min(map(len, (door.key, door.cookie))) >= 43
    assert door.knows({door.cookie_name: door.cookie})
    assert not door.knows({door.cookie_name: other.cookie})
    assert not door.knows({door.cookie_name: door.key})
    assert not door.knows({})
    assert door.cookie not in repr(door)
    assert door.key not in repr(door)
