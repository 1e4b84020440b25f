"""A path or a URL becomes the store it names; what is none says what was expected."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolweave.errors import StoreError
from toolweave.state import MemoryStore, RedisStore, SqliteStore, open_store
from toolweave.state._redis_address import RedisAddress


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("redis://localhost", "redis://localhost:6379/0"),
        ("redis://", "redis://localhost:6379/0"),
        ("valkey://cache.example:7000/3", "redis://cache.example:7000/3"),
        ("rediss://me:secret@cache.example/2", "rediss://cache.example:6379/2"),
        ("valkeys://:secret@cache.example?db=4", "rediss://cache.example:6379/4"),
        ("redis://[::1]:6380/1", "redis://[::1]:6380/1"),
        ("unix:///run/redis.sock", "unix:///run/redis.sock"),
        ("unix://me:secret@/run/redis.sock?db=2&password=secret", "unix:///run/redis.sock?db=2"),
        ("REDIS://Localhost/0", "redis://localhost:6379/0"),
    ],
)
def test_a_url_of_redis_or_valkey_is_a_store_there_and_shows_no_secret(text: str, place: str) -> None:
    store = open_store(text)

    assert isinstance(store, RedisStore)
    assert store.place == place
    assert repr(store) == f"<RedisStore {place}, prefix 'toolweave', closed>"


def test_a_name_in_the_url_is_the_prefix_of_the_store() -> None:
    store = open_store("redis://localhost/2?name=acme")

    assert repr(store) == "<RedisStore redis://localhost:6379/2, prefix 'acme', closed>"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("runs.db", "runs.db"),
        ("sqlite:///folder/runs%20of%20mine.db", "folder/runs of mine.db"),
        ("sqlite:////var/lib/runs.db", "/var/lib/runs.db"),
        ("~/runs.db", "~/runs.db"),
        ("odd:name.db", "odd:name.db"),
    ],
)
def test_a_path_is_a_file_and_none_is_made_before_it_is_used(
    text: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store(text)

    assert isinstance(store, SqliteStore)
    assert store.path == Path(path).expanduser().absolute()
    assert list(tmp_path.iterdir()) == []


def test_what_a_server_says_is_shown_without_what_is_secret_in_its_address() -> None:
    address = RedisAddress("rediss://alice:half%2Fhalf@cache.example/2?ssl_password=third")
    told = address.mask("user alice, password half/half (half%2Fhalf), third: no")

    assert told == "user ***, password *** (***), ***: no"
    assert repr(address) == "<RedisAddress rediss://cache.example:6379/2>"


def test_memory_is_a_store_too() -> None:
    assert isinstance(open_store("memory://"), MemoryStore)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a store has no name: expected a path"),
        ("postgres://me:secret@db/runs", "no store is known as postgres://; expected a path, or one of memory://"),
        ("sqlite://", "names no file; expected sqlite:///relative.db"),
        ("sqlite://host/runs.db", "names no file"),
        ("redis://:half/of@secret@host", "the address of a Redis is not understood.*write / as %2F"),
        ("redis://:1234/secret@host", "not understood"),
        ("redis://:half#secret@host", "not understood"),
        ("redis://host:port/0", "not understood"),
        ("redis://host/first", "not understood"),
        ("unix://?db=0", "not understood"),
        ("redis://me:secret@host?name=a{b", "the name in the URL: a prefix is a text without braces"),
    ],
)
def test_what_names_no_store_says_what_was_expected_and_nothing_of_a_password(text: str, message: str) -> None:
    with pytest.raises(StoreError, match=message) as raised:
        open_store(text)

    assert "secret" not in str(raised.value)
    assert "half" not in str(raised.value)
    assert "1234" not in str(raised.value)
