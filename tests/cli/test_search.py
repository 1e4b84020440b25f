"""`toolweave search`: what is in the registry, as a table and as JSON, whatever publishers write into it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cli.command import Done
from tests.install.published import entry, named
from tests.install.served import PATH, Reply, ServedRegistry
from toolweave.cli._completion import published_names

Cli = Callable[..., Done]


def test_servers_are_shown_with_how_they_can_be_had(cli: Cli, registry: ServedRegistry) -> None:
    done = cli("search", "notes")

    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0].split() == ["name", "version", "how", "description"]
    assert [line.split()[0] for line in lines[2:]] == ["com.example/notes", "io.github.acme/graph"]
    assert "npm oci nuget" in done.out
    assert "Keeps notes in a folder" in done.out


def test_a_publisher_who_no_longer_stands_by_a_server_is_shown(cli: Cli, registry: ServedRegistry) -> None:
    assert "deprecated: use com.example/weather" in cli("search", "weather").out


def test_the_json_twin_has_everything(cli: Cli, registry: ServedRegistry) -> None:
    found = cli("search", "weather", "--json").json

    assert found == {
        "servers": [
            {
                "name": "io.github.acme/old-weather",
                "version": "0.9.5",
                "title": None,
                "description": "The weather, as it was",
                "status": "deprecated",
                "status_message": "use com.example/weather",
                "kinds": ["npm"],
                "website": None,
                "published_at": "2026-01-02T03:04:05Z",
            }
        ],
        "next_cursor": None,
        "problems": [],
    }


def test_the_next_page_is_offered_and_goes_on(cli: Cli, registry: ServedRegistry) -> None:
    first = cli("search", "--limit", "2")
    second = cli("search", "--limit", "2", "--cursor", "2")

    assert "there are more: --cursor 2" in first.err
    assert "com.example/notes" in first.out
    assert "io.github.acme/old-weather" in second.out
    assert "there are more" not in second.err


def test_nothing_found_is_told(cli: Cli, registry: ServedRegistry) -> None:
    done = cli("search", "nothing-like-it")

    assert (done.code, done.out) == (0, "no server matches nothing-like-it\n")


def test_text_of_a_publisher_cannot_act_on_the_terminal(cli: Cli, registry: ServedRegistry) -> None:
    evil = {**named("com.example/notes"), "description": "\x1b[2Jgone \u202eevil", "version": "1\x1b]0;x\x07"}
    registry.entries = [entry(evil, "deprecated", "\x1b[31mred\r\nfake line")]
    registry.replies = {}

    shown, as_json = cli("search"), cli("search", "--json")

    for text in (shown.out + shown.err, as_json.out):
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert "\r" not in text
    assert as_json.json["servers"][0]["description"] == "\x1b[2Jgone \u202eevil"


def test_an_entry_that_is_broken_is_told_and_the_others_are_shown(cli: Cli, registry: ServedRegistry) -> None:
    broken = [{"server": {"name": f"com.example/\x1bx{at}"}} for at in range(7)]
    registry.replies[PATH] = Reply(200, {"servers": [*broken, registry.entries[0]]})

    done = cli("search", "notes")

    assert done.code == 0
    assert "com.example/notes" in done.out
    assert done.err.count("left out: ") == 6
    assert "left out: 2 more" in done.err
    assert "\x1b" not in done.err


@pytest.mark.parametrize(
    "reply, code, says",
    [
        (Reply(500, b""), 3, "try again later"),
        (Reply(404, b""), 2, "is not there"),
        (Reply(200, b"<html>"), 1, "is not accepted"),
    ],
    ids=["500", "404", "html"],
)
def test_a_registry_that_does_not_answer_ends_in_one_line_and_a_code(
    cli: Cli, registry: ServedRegistry, reply: Reply, code: int, says: str
) -> None:
    registry.replies[PATH] = reply

    done, twin = cli("search", "x"), cli("search", "x", "--json")

    assert (done.code, done.out) == (code, "")
    assert done.err.startswith("error: ")
    assert says in done.err
    assert twin.json["error"]["exit_code"] == code


def test_a_registry_that_is_not_there_is_3_and_one_that_is_no_url_is_2(cli: Cli) -> None:
    assert cli("search", "x", "--registry", "http://127.0.0.1:9").code == 3
    assert cli("search", "x", "--registry", "nothing").code == 2


def test_names_that_were_found_are_completed(cli: Cli, registry: ServedRegistry) -> None:
    assert published_names("io.github") == []

    cli("search")
    cli("search", "weather")

    assert published_names("io.github.acme/g") == ["io.github.acme/graph"]
    assert set(published_names("")) == {"com.example/notes", "com.example/crm", *published_names("io.github")}
