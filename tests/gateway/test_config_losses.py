"""A config that lost its servers or rules is applied after a yes, and one that cannot be read changes nothing."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.connect.targets import eventually
from tests.gateway.running import gateway, until, upstream, write_gateway_config
from toolweave.gateway import GatewayManager, GatewayOptions

TEST_SECONDS = 60

AUTH = {"api_keys": {"ada": {"sha256": "a" * 64}}}
RULES = [{"name": "rate_limit", "calls": 100, "seconds": 60}]


def servers(count: int) -> dict[str, Any]:
    """Return entries that are never connected: their programs do not exist."""
    return {
        f"s{number}": {"command": "toolweave-test-no-such-command", "args": [str(number)]} for number in range(count)
    }


def written(folder: Path, count: int, section: Mapping[str, Any] | None = None) -> Path:
    return write_gateway_config(folder, servers(count), section)


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def text(content: str | bytes) -> Callable[[Path], object]:
    """Return a function that writes a content over a file."""
    data = content.encode() if isinstance(content, str) else content
    return lambda path: path.write_bytes(data)


UNREADABLE: dict[str, Callable[[Path], object]] = {
    "deep": text('{"mcpServers":' + '{"a":' * 600 + "1" + "}" * 600 + "}"),
    "deep in its section": text('{"mcpServers": {}, "gateway": {"virtual": ' + "[" * 5000 + "]" * 5000 + "}}"),
    "half": text('{"mcpServers": {"x":'),
    "zeros": text(b"\0" * 100),
    "not text": text(b'{"\xff": 1}'),
    "a huge number": text('{"mcpServers": {"x": {"command": "y", "timeout": ' + "9" * 5000 + "}}}"),
    "a pipe": fifo,
    "a folder": folder,
    "gone": Path.unlink,
    "without rights": lambda path: path.chmod(0) if os.geteuid() else fifo(path),
}


MANY = text(json.dumps({"mcpServers": {f"s{n}": {"command": "x"} for n in range(50_000)}}))


@pytest.mark.parametrize(
    "spoil",
    [
        *(pytest.param(spoil, id=name) for name, spoil in UNREADABLE.items()),
        pytest.param(MANY, id="50,000 servers", marks=pytest.mark.slow),
    ],
)
async def test_a_config_that_cannot_be_read_changes_nothing(
    tmp_path: Path, spoil: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    config = written(tmp_path, 2)
    manager = GatewayManager(config, GatewayOptions(watch=False))
    async with manager.running():
        spoil(config)
        with caplog.at_level(logging.ERROR, "toolweave.gateway"):
            change = await manager.reload(confirmed=True)

        assert change.error is not None
        assert str(config) in change.error
        assert not change.needs_confirmation
        assert change.unchanged == ("s0", "s1")
        assert [one.name for one in manager.status().upstreams] == ["s0", "s1"]
        assert [record.levelname for record in caplog.records if record.name == "toolweave.gateway"] == ["ERROR"]


async def test_a_changed_setting_that_needs_a_restart_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manager = GatewayManager(written(tmp_path, 1, {"slow_call_seconds": 5}), GatewayOptions(watch=False))
    caplog.set_level(logging.WARNING, "toolweave.gateway")
    async with manager.running():
        written(tmp_path, 1, {"slow_call_seconds": 6, "task_seconds": 60})
        change = await manager.reload()
        await manager.reload()  # which finds no change

    logged = [record.getMessage() for record in caplog.records if "restart" in record.getMessage()]
    assert change.error is None
    assert logged == [
        "'gateway.slow_call_seconds', 'gateway.task_seconds' changed in the config: restart the gateway to apply it"
    ]


LOSSES: dict[str, tuple[Mapping[str, Any] | str, Mapping[str, Any] | str, str]] = {
    "emptied": ({"mcpServers": servers(1)}, "", "it has 0 of 1 server"),
    "blank": ({"mcpServers": servers(3)}, "\n \n", "it has 0 of 3 servers"),
    "a list": ({"mcpServers": servers(3)}, "[]", "it has 0 of 3 servers"),
    "an object": ({"mcpServers": servers(3)}, "{}", "it has 0 of 3 servers"),
    "no servers": ({"mcpServers": servers(3)}, {"mcpServers": {}}, "it has 0 of 3 servers"),
    "few servers": ({"mcpServers": servers(5)}, {"mcpServers": servers(2)}, "it has 2 of 5 servers"),
    "no section": (
        {"mcpServers": servers(1), "gateway": {"name": "g"}},
        {"mcpServers": servers(1)},
        "it has no section 'gateway'",
    ),
    "no rules": (
        {"mcpServers": servers(1), "gateway": {"middleware": RULES}},
        {"mcpServers": servers(1), "gateway": {"middleware": []}},
        "'gateway.middleware' has no rules",
    ),
    "no rules of a virtual server": (
        {"mcpServers": servers(1), "gateway": {"virtual": {"v": {"middleware": RULES}}}},
        {"mcpServers": servers(1), "gateway": {"virtual": {"v": {}}}},
        "'gateway.virtual.v.middleware' has no rules",
    ),
}


def content(value: Mapping[str, Any] | str) -> str:
    return value if isinstance(value, str) else json.dumps(value)


@pytest.mark.parametrize(("before", "after", "reason"), LOSSES.values(), ids=LOSSES)
async def test_a_config_that_lost_servers_or_rules_is_applied_when_it_is_confirmed(
    tmp_path: Path, before: Mapping[str, Any], after: Mapping[str, Any] | str, reason: str
) -> None:
    config = tmp_path / "gateway.json"
    config.write_text(content(before))
    manager = GatewayManager(config, GatewayOptions(watch=False))
    async with manager.running():
        used = manager.config
        config.write_text(content(after))
        await manager.reload()
        change = await manager.reload()  # however often it is called, it confirms nothing
        assert change.error is not None
        assert reason in change.error
        assert change.needs_confirmation
        assert manager.config is used
        assert (manager.status().problem, manager.status().needs_confirmation) == (change.error, True)

        change = await manager.reload(confirmed=True)

        assert change.error is None
        assert manager.config is not used
        assert (manager.status().problem, manager.status().needs_confirmation) == (None, False)


@pytest.mark.parametrize(
    "after",
    [
        {"mcpServers": servers(2)},
        {"mcpServers": {"renamed": servers(1)["s0"], **{f"new{n}": servers(1)["s0"] for n in range(3)}}},
        {"mcpServers": {name: {**entry, "disabled": True} for name, entry in servers(4).items()}},
    ],
    ids=["half", "renamed", "switched off"],
)
async def test_a_config_with_as_many_entries_as_half_of_the_servers_needs_no_yes(
    tmp_path: Path, after: Mapping[str, Any]
) -> None:
    config = written(tmp_path, 4)
    manager = GatewayManager(config, GatewayOptions(watch=False))
    async with manager.running():
        config.write_text(json.dumps(after))
        assert (await manager.reload()).error is None


async def test_the_second_signal_confirms_the_content_that_the_first_one_offered(tmp_path: Path) -> None:
    config = written(tmp_path, 5)
    manager = GatewayManager(config, GatewayOptions(watch=False))

    async def signalled(expected: str) -> None:
        manager.problem = None
        manager.request_reload()
        await eventually(lambda: manager.problem is not None or len(manager.config.servers.servers) < 5)
        assert expected in (manager.problem or "applied")

    async with manager.running():
        config.write_text("{}")
        await signalled("send SIGHUP again")
        written(tmp_path, 1)  # another content than the one that was offered
        await signalled("it has 1 of 5 servers. If that is meant, restart the gateway, send SIGHUP again")
        written(tmp_path, 5)
        assert (await manager.reload()).error is None
        written(tmp_path, 1)
        await signalled("send SIGHUP again")
        assert "send SIGHUP again" in str((await manager.reload()).error)
        await signalled("applied")
        assert list(manager.config.servers.servers) == ["s0"]


@pytest.mark.parametrize("section", [{"auth": AUTH}, {"auth": AUTH, "middleware": RULES}])
async def test_no_yes_drops_the_authorization_of_callers(tmp_path: Path, section: Mapping[str, Any]) -> None:
    config = written(tmp_path, 1, section)
    manager = GatewayManager(config, GatewayOptions(watch=False))
    async with manager.running():
        sections: list[Mapping[str, Any] | None] = [{}, None]
        for left in sections:
            written(tmp_path, 1, left)
            change = await manager.reload(confirmed=True)
            assert change.error is not None
            assert "'gateway.auth' has changed" in change.error
            assert not change.needs_confirmation


@pytest.mark.slow
async def test_a_file_that_is_emptied_again_and_again_confirms_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = written(tmp_path, 2)
    manager = GatewayManager(config)
    caplog.set_level(logging.ERROR, "toolweave.gateway")
    async with manager.running():
        for blank in ("", " ", "  "):
            config.write_text(blank)
            await eventually(lambda: manager.needs_confirmation, 30)
            manager.needs_confirmation = False
        assert list(manager.config.servers.servers) == ["s0", "s1"]
        errors = [record for record in caplog.records if record.name == "toolweave.gateway"]
        assert len(errors) == 1


@pytest.mark.slow
def test_an_emptied_file_leaves_the_servers_of_a_running_gateway_until_a_second_sighup(tmp_path: Path) -> None:
    config = write_gateway_config(tmp_path, {"a": upstream(tmp_path, "a")})
    with gateway(tmp_path, config, "--no-watch") as running:
        config.write_text("")
        running.hang_up()
        until(lambda: running.status()["problem"], "the problem")
        assert [one["name"] for one in running.status()["upstreams"]] == ["a"]
        assert "send SIGHUP again" in running.log

        running.hang_up()
        until(lambda: running.status()["upstreams"] == [], "the empty gateway")


@pytest.mark.slow
def test_the_admin_api_applies_a_smaller_config_with_a_yes_only(tmp_path: Path) -> None:
    config = write_gateway_config(tmp_path, {"a": upstream(tmp_path, "a")})
    with gateway(tmp_path, config, "--no-watch") as running:
        config.write_text("{}")
        refused = running.admin("POST", "/reload", {})
        assert (refused.status, refused.json["needs_confirmation"]) == (422, True)
        assert "toolweave gateway reload --yes" in refused.json["error"]
        assert running.admin("POST", "/reload", {"confirmed": "yes"}).status == 400
        assert [one["name"] for one in running.status()["upstreams"]] == ["a"]

        applied = running.admin("POST", "/reload", {"confirmed": True})
        assert (applied.status, applied.json["removed"]) == (200, ["a"])


@pytest.mark.slow
def test_all_workers_of_a_gateway_keep_what_a_config_lost_until_one_of_them_gets_a_yes(tmp_path: Path) -> None:
    config = write_gateway_config(tmp_path, {"a": upstream(tmp_path, "a")})
    with gateway(tmp_path, config, "--no-watch", "--workers", "2") as running:

        def upstreams() -> set[int]:
            """Return the numbers of upstreams that the workers have; each request reaches one of them."""
            return {len(running.status()["upstreams"]) for _ in range(20)}

        config.write_text("{}")
        for _ in range(4):  # requests of programs, at any worker: none of them is a yes
            assert running.admin("POST", "/reload", {}).status == 422
        assert upstreams() == {1}

        assert running.admin("POST", "/reload", {"confirmed": True}).status == 200
        until(lambda: upstreams() == {0}, "the change of all workers")
