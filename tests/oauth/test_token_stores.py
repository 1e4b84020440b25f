"""Sentences that every store of tokens is held to: in a file, in a keyring, in a store that machines share."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeAlias

import anyio
import pytest

from tests.oauth.token_stores import DictKeyring, a_key, a_record, new_key
from tests.redis_server import NO_SERVER, RedisServer
from toolweave.errors import StoreError
from toolweave.oauth import FileTokenStore, KeyringTokenStore, SharedTokenStore, TokenKey, TokenStore
from toolweave.state import MemoryStore, RedisStore, SqliteStore

KINDS = ["file", "encrypted file", "keyring", "memory", "sqlite", "redis"]

Again: TypeAlias = Callable[[], TokenStore]
"""Makes the same store again, as another process does."""


@pytest.fixture(params=KINDS)
async def again(
    request: pytest.FixtureRequest, tmp_path: Path, redis_server: RedisServer | None
) -> AsyncIterator[Again]:
    """Makes the same store, once more with each call."""
    key = new_key()
    if request.param == "file":
        yield lambda: FileTokenStore(tmp_path / "tokens" / "tokens.json")
    elif request.param == "encrypted file":
        yield lambda: FileTokenStore(tmp_path / "tokens" / "tokens.json", key=key)
    elif request.param == "keyring":
        keyring = DictKeyring()
        yield lambda: KeyringTokenStore(keyring)
    else:
        async with _shared(request.param, tmp_path, redis_server) as store:
            yield lambda: SharedTokenStore(store, key=key)


@pytest.fixture
def store(again: Again) -> TokenStore:
    return again()


numbers = itertools.count()


def _shared(kind: str, tmp_path: Path, server: RedisServer | None) -> MemoryStore | SqliteStore | RedisStore:
    if kind == "memory":
        return MemoryStore()
    if kind == "sqlite":
        return SqliteStore(tmp_path / "store.db")
    if server is None:
        pytest.skip(NO_SERVER)
    return RedisStore(server.url, prefix=f"tokens-{os.getpid()}-{next(numbers)}")


async def test_a_record_comes_back_as_it_was_saved(again: Again) -> None:
    await again().save(a_record())

    assert await again().load(a_key()) == a_record()


async def test_there_is_no_record_until_one_is_saved(store: TokenStore) -> None:
    assert await store.load(a_key()) is None
    assert list(await store.records()) == []
    assert not await store.delete(a_key())


async def test_a_long_token_comes_back_whole_and_a_short_one_after_it(store: TokenStore) -> None:
    for token in ("long" * 5_000, "longer" * 6_000, "short"):
        await store.save(a_record(token=token))
        found = await store.load(a_key())
        assert found is not None
        assert found.access_token == token


@pytest.mark.parametrize("part", ["issuer", "resource", "client", "principal"])
async def test_a_record_is_never_that_of_another_key(store: TokenStore, part: str) -> None:
    other = a_key(**{part: "https://other.example"})
    await store.save(a_record(token="mine"))

    assert await store.load(other) is None
    await store.save(a_record(other, token="theirs"))
    assert {one.access_token for one in await store.records()} == {"mine", "theirs"}
    assert await store.delete(other)
    assert [one.access_token for one in await store.records()] == ["mine"]


async def test_keys_that_read_alike_when_they_are_joined_are_not_the_same(store: TokenStore) -> None:
    await store.save(a_record(a_key(client="ab", principal="c")))

    assert await store.load(a_key(client="a", principal="bc")) is None


async def test_a_deleted_record_is_gone_and_can_be_saved_again(store: TokenStore) -> None:
    await store.save(a_record())

    assert await store.delete(a_key())
    assert not await store.delete(a_key())
    assert await store.load(a_key()) is None
    assert list(await store.records()) == []
    await store.save(a_record(token="again"))
    assert [one.access_token for one in await store.records()] == ["again"]


async def test_records_are_those_of_a_resource_or_of_a_principal_the_newest_first(store: TokenStore) -> None:
    for number, (resource, principal) in enumerate([("a", "ann"), ("b", "ann"), ("a", "bob"), ("a", "")]):
        key = a_key(resource=resource, principal=principal)
        await store.save(a_record(key, token=f"{resource}-{principal}", saved_at=float(number)))

    async def found(resource: str | None = None, principal: str | None = None) -> list[str]:
        return [one.access_token for one in await store.records(resource=resource, principal=principal)]

    assert await found() == ["a-", "a-bob", "b-ann", "a-ann"]
    assert await found(resource="a") == ["a-", "a-bob", "a-ann"]
    assert await found(principal="ann") == ["b-ann", "a-ann"]
    assert await found(resource="a", principal="") == ["a-"]
    assert await found(principal="carl") == []


async def test_records_that_are_saved_at_the_same_time_are_all_kept(again: Again) -> None:
    stores = [again() for _ in range(10)]
    async with anyio.create_task_group() as tasks:
        for number, store in enumerate(stores):
            tasks.start_soon(store.save, a_record(a_key(principal=str(number)), token=str(number)))

    assert {one.access_token for one in await again().records()} == {str(number) for number in range(10)}


async def test_one_at_a_time_holds_the_record_of_a_key(again: Again) -> None:
    inside: list[int] = []
    most = 0

    async def hold(store: TokenStore) -> None:
        nonlocal most
        async with store.locked(a_key(), seconds=30):
            inside.append(1)
            most = max(most, len(inside))
            await anyio.sleep(0.01)
            inside.pop()

    async with anyio.create_task_group() as tasks:
        for store in [again() for _ in range(5)]:
            tasks.start_soon(hold, store)

    assert most == 1


async def test_who_holds_a_record_keeps_nobody_from_another(again: Again) -> None:
    async with again().locked(a_key(principal="ann"), seconds=1), again().locked(a_key(principal="bob"), seconds=1):
        await again().save(a_record(a_key(principal="bob")))
        await again().save(a_record(a_key(principal="ann")))

    assert len(await again().records()) == 2


async def test_a_record_that_somebody_holds_for_too_long_is_an_error_that_names_the_resource(again: Again) -> None:
    async with again().locked(a_key(), seconds=1):
        with pytest.raises(StoreError, match=r"the token for https://mcp\.example/mcp is held by another process"):
            async with again().locked(a_key(), seconds=0.05):
                pytest.fail("it is held")


async def test_a_record_is_free_after_a_failure_which_comes_out_as_it_was(again: Again) -> None:
    with pytest.raises(KeyError, match="mine"):
        async with again().locked(a_key(), seconds=1):
            raise KeyError("mine")

    async with again().locked(a_key(), seconds=0):
        pass


async def test_who_gives_up_waiting_for_a_record_does_not_hold_it(again: Again) -> None:
    async with again().locked(a_key(), seconds=1):
        with anyio.move_on_after(0.05) as waiting:
            async with again().locked(a_key(), seconds=30):
                pytest.fail("it is held")

    assert waiting.cancelled_caught
    async with again().locked(a_key(), seconds=0):
        pass


async def test_no_token_is_shown_by_a_store_or_a_record(store: TokenStore) -> None:
    await store.save(a_record(token="top-secret"))

    assert "top-secret" not in repr(store) + repr(await store.load(a_key())) + repr(await store.records())
    assert "client-secret" not in repr(await store.load(a_key()))


async def test_what_is_kept_elsewhere_is_never_in_the_clear(tmp_path: Path) -> None:
    key = new_key()
    async with SqliteStore(tmp_path / "store.db") as documents:
        await FileTokenStore(tmp_path / "tokens.json", key=key).save(
            a_record(a_key(principal="ann"), token="top-secret")
        )
        await SharedTokenStore(documents, key=key).save(a_record(a_key(principal="ann"), token="top-secret"))
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())

    assert kept
    for word in (b"top-secret", b"refresh", b"mcp.example", b'ann"'):
        assert word not in kept


async def test_a_record_that_was_put_in_the_place_of_another_is_refused() -> None:
    async with MemoryStore() as documents:
        store = SharedTokenStore(documents, key=new_key())
        for principal in ("ann", "bob"):
            await store.save(a_record(a_key(principal=principal), token=principal))
        first, second = await documents.scan("oauth-tokens")
        await documents.put("oauth-tokens", first.key, second.value)

        with pytest.raises(StoreError, match="written with another key, or it is damaged"):
            await store.records()


async def test_a_shared_store_needs_a_key() -> None:
    with pytest.raises(StoreError, match="always encrypted: give a key, or set TOOLWEAVE_TOKEN_KEY"):
        SharedTokenStore(MemoryStore())


async def test_the_key_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TOOLWEAVE_TOKEN_KEY", key := new_key())
    await FileTokenStore(tmp_path / "tokens.json").save(a_record())
    monkeypatch.delenv("TOOLWEAVE_TOKEN_KEY")

    assert await FileTokenStore(tmp_path / "tokens.json", key=key).load(a_key()) == a_record()


@pytest.mark.parametrize("wrong", ["", "short", "ü" * 32, "A" * 43, " , "])
def test_a_key_of_another_form_is_refused_and_not_shown(wrong: str, tmp_path: Path) -> None:
    if not wrong:
        assert "encrypted" not in repr(FileTokenStore(tmp_path / "tokens.json", key=wrong))
        return
    with pytest.raises(StoreError, match="openssl rand -base64 32") as caught:
        FileTokenStore(tmp_path / "tokens.json", key=wrong)

    assert wrong.strip(" ,") == "" or wrong not in str(caught.value)


async def test_a_key_is_replaced_by_giving_both_until_all_is_written_anew(tmp_path: Path) -> None:
    old, new = new_key(), new_key()
    async with MemoryStore() as documents:

        async def keys() -> list[TokenKey]:
            return [one.key for one in await SharedTokenStore(documents, key=f"{new},{old}").records()]

        await SharedTokenStore(documents, key=old).save(a_record(a_key(client="a")))
        await SharedTokenStore(documents, key=f"{new},{old}").save(a_record(a_key(client="b")))
        assert len(await keys()) == 2
        assert await SharedTokenStore(documents, key=new).load(a_key(client="b")) is not None
        with pytest.raises(StoreError, match="another key"):
            await SharedTokenStore(documents, key=new).load(a_key(client="a"))


async def test_the_lock_of_a_holder_that_died_ends_by_itself() -> None:
    async with MemoryStore() as documents:
        store = SharedTokenStore(documents, key=new_key())
        async with store.locked(a_key(), seconds=1):
            (held,) = await documents.scan("oauth-locks")
        await documents.put("oauth-locks", held.key, "a dead holder", ttl=0.1)

        async with store.locked(a_key(), seconds=30):
            pass


@pytest.mark.slow
async def test_a_lock_lasts_as_long_as_the_work_under_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolweave.oauth._stores.shared_store.LOCK_SECONDS", 0.3)
    async with MemoryStore() as documents:
        store = SharedTokenStore(documents, key=new_key())
        async with store.locked(a_key(), seconds=1):
            with pytest.raises(StoreError, match="held by another process"):
                async with store.locked(a_key(), seconds=1):
                    pytest.fail("it is held")
