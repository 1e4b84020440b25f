"""The registry is asked over HTTP: pages, versions, what is broken, hostile, slow or too large."""

from __future__ import annotations

import hashlib
from typing import Any

import jsonschema_rs
import pytest

from tests.install.published import ENTRIES, SERVER_SCHEMA, entry, named
from tests.install.served import PATH, Reply, ServedRegistry
from toolweave.errors import ConfigError, ErrorKind, RegistryError
from toolweave.install import OFFICIAL_REGISTRY, McpRegistry


@pytest.mark.parametrize("one", ENTRIES, ids=lambda one: one["server"]["name"])
def test_the_entries_of_these_tests_are_those_that_the_published_schema_allows(one: dict[str, Any]) -> None:
    jsonschema_rs.validator_for(SERVER_SCHEMA).validate(one["server"])


async def test_servers_are_found_by_every_word_of_a_search(registry: ServedRegistry) -> None:
    found = await McpRegistry(registry.url).search("notes", "GRAPHS")

    assert [one.name for one in found.servers] == ["io.github.acme/graph"]
    assert found.servers[0].kinds == ("npm", "oci", "nuget")
    assert "search=graphs" in registry.asked[0]
    assert "version=latest" in registry.asked[0]


async def test_pages_are_followed_until_there_are_enough(registry: ServedRegistry) -> None:
    registry.entries = [entry({**named("com.example/notes"), "name": f"com.example/n{at}"}) for at in range(7)]
    asked = McpRegistry(registry.url)

    first = await asked.search(limit=3)
    rest = await asked.search(limit=100, cursor=first.next_cursor)

    assert [one.name for one in first.servers] == [f"com.example/n{at}" for at in range(3)]
    assert first.next_cursor == "3"
    assert [one.name for one in rest.servers] == [f"com.example/n{at}" for at in range(3, 7)]
    assert rest.next_cursor == ""


async def test_words_that_the_registry_does_not_look_for_take_more_pages(registry: ServedRegistry) -> None:
    registry.entries = [entry({**named("com.example/notes"), "name": f"com.example/n{at}"}) for at in range(5)]

    found = await McpRegistry(registry.url).search("folder", "n4", limit=2)

    assert [one.name for one in found.servers] == ["com.example/n4"]
    assert len(registry.asked) == 3


async def test_pages_in_a_circle_end(registry: ServedRegistry) -> None:
    registry.replies[PATH] = Reply(200, {"servers": [], "metadata": {"nextCursor": "again"}})

    with pytest.raises(RegistryError, match="in a circle"):
        await McpRegistry(registry.url).search("x")


async def test_what_the_registry_says_of_a_version_counts_not_what_its_publisher_says(registry: ServedRegistry) -> None:
    registry.entries = [entry({**named("com.example/notes"), "status": "active"}, "deprecated", "use another")]

    server = await McpRegistry(registry.url).server("com.example/notes")

    assert (server.status, server.status_message) == ("deprecated", "use another")
    assert (server.version, server.title, server.published_at) == ("1.2.0", "Notes", "2026-01-02T03:04:05Z")


async def test_a_version_is_asked_for_by_its_number(registry: ServedRegistry) -> None:
    older = {**named("com.example/notes"), "version": "1.0.0+a/b"}
    registry.entries = [*ENTRIES, entry(older)]

    server = await McpRegistry(registry.url).server("com.example/notes", "1.0.0+a/b")

    assert server.version == "1.0.0+a/b"
    assert registry.asked == [f"{PATH}/com.example%2Fnotes/versions/1.0.0%2Ba%2Fb"]


async def test_a_server_that_is_not_there_is_not_found(registry: ServedRegistry) -> None:
    with pytest.raises(RegistryError, match=r"'com\.example/nothing' is not there") as caught:
        await McpRegistry(registry.url).server("com.example/nothing")

    assert caught.value.kind is ErrorKind.NOT_FOUND


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"server": None},
        {"server": {"name": "com.example/x"}},
        {"server": {"name": "no-slash", "version": "1"}},
        {"server": {"name": "a/b/c", "version": "1"}},
        {"server": {"name": "com.example/\x1b[31m", "version": "1"}},
        {"server": {"name": "com.example/x", "version": 5}},
        {"server": {"name": "com.example/x", "version": "1", "packages": "none"}},
        {"server": {"name": "com.example/x", "version": "1", "packages": [{"registryType": "npm"}]}},
        "text",
    ],
    ids=range(10),
)
async def test_a_broken_entry_costs_only_itself(registry: ServedRegistry, broken: Any) -> None:
    registry.replies[PATH] = Reply(200, {"servers": [broken, ENTRIES[0]], "metadata": {}})

    page = await McpRegistry(registry.url).page()

    assert [one.name for one in page.servers] == ["com.example/notes"]
    assert len(page.problems) == 1
    assert page.problems[0].isprintable()


@pytest.mark.parametrize(
    "reply, says, kind",
    [
        (Reply(200, b"<html>"), "is not accepted", ErrorKind.PROTOCOL),
        (Reply(200, b'{"servers": {}}'), "without a list of servers", ErrorKind.PROTOCOL),
        (Reply(200, b"[]"), "is not accepted", ErrorKind.PROTOCOL),
        (Reply(200, b"[" * 100_000), "is not accepted", ErrorKind.PROTOCOL),
        (Reply(200, b"\xff\xfe"), "is not accepted", ErrorKind.PROTOCOL),
        (Reply(400, b"no"), "answered 400", ErrorKind.PROTOCOL),
        (Reply(404, b"no"), "is not there", ErrorKind.NOT_FOUND),
        (Reply(429, b"no"), "try again later", ErrorKind.NOT_SENT),
        (Reply(500, b"no"), "try again later", ErrorKind.NOT_SENT),
        (Reply(302, b"", {"location": "https://elsewhere.example/v0.1/servers"}), "redirects", ErrorKind.PROTOCOL),
        (Reply(302, b"", {"location": "/v0.1/servers"}), "more than 3 times", ErrorKind.PROTOCOL),
        (Reply(200, b"x", {"content-encoding": "gzip"}), "compressed", ErrorKind.PROTOCOL),
        (Reply(endless=True), "is larger than", ErrorKind.PROTOCOL),
    ],
    ids=range(13),
)
async def test_an_answer_that_is_none_is_an_error_that_says_so(
    registry: ServedRegistry, reply: Reply, says: str, kind: ErrorKind
) -> None:
    registry.replies[PATH] = reply

    with pytest.raises(RegistryError, match=says) as caught:
        await McpRegistry(registry.url).page()

    assert caught.value.kind is kind


async def test_a_registry_that_does_not_answer_is_given_up(registry: ServedRegistry) -> None:
    registry.replies[PATH] = Reply(waits=True)

    with pytest.raises(RegistryError, match=r"was not received within 0\.2 s") as caught:
        await McpRegistry(registry.url, seconds=0.2).page()

    assert caught.value.kind is ErrorKind.NOT_SENT


async def test_a_registry_that_is_not_there_is_not_reached() -> None:
    with pytest.raises(RegistryError, match="was not received") as caught:
        await McpRegistry("http://127.0.0.1:9").page()

    assert caught.value.kind is ErrorKind.NOT_SENT


@pytest.mark.parametrize(
    "url", ["ftp://x", "http://registry.example", "https://user:word@x", "nothing", "https://x/#y"]
)
def test_a_url_that_is_not_asked_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="the registry's URL"):
        McpRegistry(url)


def test_the_registry_is_the_official_one_unless_something_else_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert McpRegistry().url == OFFICIAL_REGISTRY

    monkeypatch.setenv("TOOLWEAVE_REGISTRY", "https://registry.example/")

    assert McpRegistry().url == "https://registry.example"
    assert McpRegistry("https://mine.example").url == "https://mine.example"
    assert "https://mine.example" in repr(McpRegistry("https://mine.example"))


async def test_an_answer_about_another_server_is_refused(registry: ServedRegistry) -> None:
    registry.replies[f"{PATH}/com.example%2Fnotes/versions/latest"] = Reply(200, ENTRIES[1])

    with pytest.raises(RegistryError, match=r"the registry answered 'io\.github\.acme/graph'"):
        await McpRegistry(registry.url).server("com.example/notes")


async def test_a_bundle_is_downloaded_through_redirects_and_checked(registry: ServedRegistry) -> None:
    data = b"a bundle" * 1000
    registry.replies["/from"] = Reply(302, b"", {"location": f"{registry.url.replace('127.0.0.1', 'localhost')}/to"})
    registry.replies["/to"] = Reply(200, data, {"content-type": "application/octet-stream"})
    asked = McpRegistry(registry.url)

    assert await asked.bundle(f"{registry.url}/from", hashlib.sha256(data).hexdigest()) == data
    with pytest.raises(RegistryError, match="is not the file that the registry's entry is about"):
        await asked.bundle(f"{registry.url}/to", "0" * 64)
    with pytest.raises(RegistryError, match="has no SHA-256"):
        await asked.bundle(f"{registry.url}/to", "")


@pytest.mark.parametrize(
    "url, says",
    [
        ("http://169.254.169.254/latest/meta-data", "plain http"),
        ("https://169.254.169.254/x.mcpb", "a link-local address"),
        ("https://10.0.0.1/x.mcpb", "a private address"),
        ("file:///etc/passwd", "not an http or https URL"),
        ("https://user:word@example.com/x.mcpb", "user info"),
    ],
)
async def test_a_bundle_is_not_fetched_from_where_the_registry_is_not(
    registry: ServedRegistry, url: str, says: str
) -> None:
    with pytest.raises(RegistryError, match=says):
        await McpRegistry(registry.url).bundle(url, "0" * 64)


async def test_a_redirect_of_a_bundle_to_the_own_network_is_not_followed(registry: ServedRegistry) -> None:
    registry.replies["/from"] = Reply(302, b"", {"location": "https://192.168.0.1/x.mcpb"})

    with pytest.raises(RegistryError, match="a private address"):
        await McpRegistry(registry.url).bundle(f"{registry.url}/from", "0" * 64)
