"""Addresses of stores."""

from pathlib import Path
from typing import cast

import pytest

from gateway.state.memory import MemoryStore
from gateway.state.opening import open_store
from gateway.state.redis import RedisStore
from gateway.state.sqlite import SqliteStore


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("memory://", MemoryStore),
        ("sqlite:///toolgate.db", SqliteStore),
        ("sqlite:////var/lib/toolgate.db", SqliteStore),
        ("redis://localhost", RedisStore),
        ("redis://user:p%40ss@localhost:6380/3", RedisStore),
        ("rediss://[::1]:6379/0", RedisStore),
        ("unix:///run/redis.sock?db=1", RedisStore),
    ],
)
def test_an_address_names_its_store(url, kind):
    assert isinstance(open_store(url, prefix="p:", timeout_ms=200), kind)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "toolgate.db",
        "memory://x",
        "sqlite:toolgate.db",
        "sqlite://toolgate.db",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite:///a%00b",
        "sqlite:///a.db?mode=ro",
        "redis://",
        "redis:///0",
        "redis://:hunter22@",
        "redis://u:hunter22@h:port/0",
        "redis://u:hunter22@h/notadb",
        "redis://u:hunter22@h/0?socket_timeout=hunter22",
        "redis://u:hunter22@h/0?hunter22=1",
        "rediss://u:hunter22@[::1/0",
        "unix://",
        "http://h/",
    ],
)
def test_an_address_of_no_store_is_refused_without_being_repeated(url):
    with pytest.raises(ValueError, match="must") as refused:
        open_store(url, prefix="p:", timeout_ms=200)
    assert "hunter22" not in str(refused.value)
    assert refused.value.__suppress_context__ or refused.value.__context__ is None


def test_three_slashes_are_a_relative_path_and_four_an_absolute_one():
    relative = open_store("sqlite:///a/b%20c.db", prefix="", timeout_ms=1)
    absolute = open_store("sqlite:////a/b.db", prefix="", timeout_ms=1)
    assert [cast("SqliteStore", store)._journal.path for store in (relative, absolute)] == [
        Path("a/b c.db"),
        Path("/a/b.db"),
    ]
