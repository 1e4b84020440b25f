"""Servers are added and removed while a gateway runs, by those who have its token and by nobody else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.connect.targets import eventually
from tests.gateway.running import gateway, spoken, upstream, write_gateway_config
from toolweave import connect_mcp
from toolweave.errors import AuthRequiredError, ConfigError, ConnectError, ServerError
from toolweave.gateway import GatewayAdmin

TEST_SECONDS = 120

pytestmark = pytest.mark.slow


async def test_a_server_is_added_used_and_removed(tmp_path: Path) -> None:
    config = write_gateway_config(tmp_path, {"a": upstream(tmp_path, "a")})
    with gateway(tmp_path, config) as running:
        async with (
            connect_mcp(running.entry(), name="g") as connection,
            GatewayAdmin(running.base, running.token) as admin,
        ):
            added = await admin.add("b", upstream(tmp_path, "b"))
            assert (added.name, added.state, added.added, added.tools) == ("b", "ready", True, 4)
            assert (await connection.call_tool("b_add", {"a": 1, "b": 2})).structured_content == {"sum": 3}
            assert [one.name for one in (await admin.status()).upstreams] == ["a", "b"]

            write_gateway_config(tmp_path, {"c": upstream(tmp_path, "c")})
            change = await admin.reload()
            assert (change.added, change.removed, change.unchanged) == (("c",), ("a",), ("b",))

            await admin.remove("b")
            await eventually(lambda: [one.name[:2] for one in connection.snapshot()] == ["c_"] * 4)
            with pytest.raises(ConfigError, match="server 'b' was not found"):
                await admin.remove("b")


async def test_a_server_that_cannot_be_added_is_not(tmp_path: Path) -> None:
    config = write_gateway_config(tmp_path, {"a": upstream(tmp_path, "a")})
    with gateway(tmp_path, config) as running:
        async with GatewayAdmin(running.base, running.token) as admin:
            with pytest.raises(ServerError, match="server 'b': "):
                await admin.add("b", {"command": "toolweave-test-no-such-command"})
            with pytest.raises(ConfigError, match="'command'"):
                await admin.add("b", {"args": []})
            with pytest.raises(ConfigError, match="change it there"):
                await admin.add("a", upstream(tmp_path, "a", "2"))
            with pytest.raises(ConfigError, match="name"):
                await admin.add("", upstream(tmp_path, "b"))

            assert [one.name for one in (await admin.status()).upstreams] == ["a"]


async def test_only_the_token_opens_the_admin_api(tmp_path: Path) -> None:
    config = write_gateway_config(tmp_path, {"a": upstream(tmp_path, "a")})
    with gateway(tmp_path, config) as running:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": f"Basic {running.token}"}):
            assert running.spoken("GET", "/admin/status", headers=headers).status == 401
        async with GatewayAdmin(running.base, "not the token at all") as admin:
            with pytest.raises(AuthRequiredError, match="refused the admin token"):
                await admin.status()

        bearer = {"authorization": f"Bearer {running.token}"}
        page = {**bearer, "origin": "https://evil.example"}
        assert running.spoken("GET", "/admin/status", headers=page).status == 403
        assert running.spoken("GET", "/admin/status", headers={**bearer, "host": "evil.example"}).status == 421
        form = {**bearer, "content-type": "application/x-www-form-urlencoded"}
        assert running.spoken("POST", "/admin/reload", {}, form).status == 415
        assert running.spoken("GET", "/admin/status", headers=bearer).status == 200
        assert running.token not in running.log


async def test_wrong_requests_of_the_admin_are_told_what_is_right(tmp_path: Path) -> None:
    config = write_gateway_config(tmp_path, {})
    with gateway(tmp_path, config) as running:
        assert running.admin("GET", "/nothing").status == 404
        assert running.admin("PUT", "/servers", {}).status == 405
        assert running.admin("POST", "/servers", ["x"]).json["error"]["code"] == "invalid_request"
        assert running.admin("DELETE", "/servers/x").json["error"]["code"] == "not_found"
        large = {"name": "x", "config": {"command": "x" * 300_000}}
        assert running.admin("POST", "/servers", large).status == 413


async def test_a_gateway_that_others_reach_has_no_admin_api_without_a_token(tmp_path: Path) -> None:
    config = write_gateway_config(tmp_path, {"a": upstream(tmp_path, "a")})
    open_to_all = ("--http", "0.0.0.0:0")
    with gateway(tmp_path, config, address=open_to_all[1]) as running:
        base = running.base.replace("0.0.0.0", "127.0.0.1")
        assert spoken(base, "GET", "/admin/status").status == 404

    token = "a token of at least sixteen"
    with gateway(
        tmp_path, config, "--admin-token-env", "ADMIN", address=open_to_all[1], env={"ADMIN": token}
    ) as running:
        base = running.base.replace("0.0.0.0", "127.0.0.1")
        async with GatewayAdmin(base, token) as admin:
            assert (await admin.status()).ready


async def test_a_client_of_the_admin_api_says_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="not the address of a gateway"):
        GatewayAdmin("gateway.example")
    with pytest.raises(ConfigError, match="your user runs no gateway on port 1 of this machine"):
        GatewayAdmin("http://127.0.0.1:1")
    with pytest.raises(ConfigError, match="start the gateway with --admin-token-env"):
        GatewayAdmin("https://gateway.example")
    with pytest.raises(ConfigError, match="plain http"):
        GatewayAdmin("http://gateway.example", "x" * 16)
    async with GatewayAdmin("http://127.0.0.1:1", "x" * 16) as admin:
        with pytest.raises(ConnectError, match="not reached"):
            await admin.status()
