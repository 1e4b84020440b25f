"""`toolweave auth`: signing in, who is signed in, signing out; and where other commands say so."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from tests.cli.command import Done, on_terminal, toolweave
from tests.cli.conftest import Cli
from tests.conformance.headless import location_of
from tests.oauth.world import World, world
from tests.serve.serving import served_http
from toolweave import AuthRequiredError, connect_mcp, create_mcp_server
from toolweave.oauth import FileTokenStore, OAuth, TokenRecord
from toolweave.serve import BearerAuth

pytestmark = pytest.mark.slow

Run = Callable[..., Awaitable[Done]]


@pytest.fixture(autouse=True)
def _browser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROWSER", f"{sys.executable} {Path(__file__).with_name('browser.py')} %s")


@asynccontextmanager
async def hosted(folder: Path) -> AsyncGenerator[tuple[World, Run]]:
    """Serve a server that requires a sign-in, with its config in the folder; yields what runs a command there."""
    async with world() as made:
        entry = {"url": made.server.url, "auth": "oauth", "protocol": "2026-07-28"}
        (folder / "api.json").write_text(json.dumps({"mcpServers": {"api": entry}}))

        async def run(*args: object, env: dict[str, str] | None = None) -> Done:
            with_config = (*args, "--config", "api.json") if "api" in args or args[0] != "auth" else args
            return await anyio.to_thread.run_sync(partial(toolweave, *with_config, cwd=folder, env=env))

        yield made, run


async def kept() -> list[TokenRecord]:
    return list(await FileTokenStore().records())


async def test_a_sign_in_with_the_browser_is_kept_and_used_and_shown_nowhere(folder: Path) -> None:
    async with hosted(folder) as (made, run):
        before = await run("tools")
        login = await run("auth", "login", "api", "-v")
        after = await run("tools", "-v")
        (record,) = await kept()

    assert before.code == 3
    assert "run `toolweave auth login api`" in before.err
    assert "hint:" not in before.err
    assert (login.code, after.code) == (0, 0), login.err + after.err
    assert login.out.startswith("server 'api': signed in until 20")
    assert f"issuer: {made.host.issuer}" in login.out
    assert f"Bearer {record.access_token}" in made.server.tokens()
    for secret in (record.access_token, record.refresh_token or "-"):
        assert secret not in login.out + login.err + after.out + after.err


async def test_a_sign_in_as_json_has_everything_but_the_token(folder: Path) -> None:
    async with hosted(folder) as (made, run):
        login = await run("auth", "login", "api", "--principal", "ann", "--scope", "a b", "--scopes", "c", "--json")
        (record,) = await kept()

    assert login.json == {
        "server": "api",
        "resource": made.server.url,
        "issuer": made.host.issuer,
        "client": "",
        "principal": "ann",
        "scopes": ["a", "b", "c"],
        "state": "signed in",
        "expires_at": record.expires_at,
        "renewable": True,
    }
    assert made.host.authorizations()[0]["scope"] == "a b c"
    assert record.key.principal == "ann"


async def test_a_server_that_no_config_names_is_signed_in_to_by_its_url(folder: Path) -> None:
    async with hosted(folder) as (made, run):
        login = await run("auth", "login", made.server.url)
        tools = await run("tools", "--config", "api.json")
        by_url = await anyio.to_thread.run_sync(partial(toolweave, "tools", "--url", made.server.url, cwd=folder))

    assert login.code == 0, login.err
    assert '"auth": "oauth"' in login.err
    assert (tools.code, by_url.code) == (0, 0), by_url.err
    assert len(made.host.authorizations()) == 1


async def test_the_url_of_a_server_is_an_option_as_in_other_commands(folder: Path) -> None:
    async with hosted(folder) as (made, run):
        at = ("--url", made.server.url)
        login = await run("auth", "login", *at)
        tools = await anyio.to_thread.run_sync(partial(toolweave, "tools", *at, cwd=folder))
        logout = await run("auth", "logout", *at)
        left = await kept()

    assert (login.code, tools.code, logout.code) == (0, 0, 0), login.err + tools.err + logout.err
    assert logout.out.startswith(f"signed out of {made.server.url}")
    assert not left


@pytest.mark.parametrize(
    "words, says",
    [
        (["login"], "toolweave auth login SERVER, or toolweave auth login --url URL"),
        (["login", "api", "--url", "https://example.org/mcp"], "SERVER and --url exclude each other"),
        (["login", "--url", "api"], "the value of --url is not a URL"),
        (["logout", "--all", "--url", "https://example.org/mcp"], "name one server, or say --all"),
    ],
)
async def test_a_sign_in_is_for_one_server(words: list[str], says: str) -> None:
    done = await anyio.to_thread.run_sync(partial(toolweave, "auth", *words))

    assert done.code == 2
    assert says in done.err


@pytest.mark.parametrize(
    "settings",
    [{}, {"name": "notes"}, {"auth": {"type": "oauth", "principal": "ann b"}}, {"auth": OAuth(scopes=["a", "b"])}],
    ids=["url", "named", "principal", "scopes"],
)
async def test_the_command_that_an_error_names_signs_in(folder: Path, settings: dict[str, Any]) -> None:
    async with hosted(folder) as (made, run):
        target = {"url": made.server.url, "auth": "oauth", "protocol": "2026-07-28", **settings}
        with pytest.raises(AuthRequiredError) as needed:
            await connect_mcp(target)
        program, *command = shlex.split(str(needed.value).split("`")[1])
        login = await run(*command)
        async with connect_mcp(target) as connection:
            answer = await connection.call_tool("t")

    assert (program, login.code) == ("toolweave", 0), login.err
    assert made.server.url in command
    assert answer.text == "done"


async def test_the_command_of_a_hint_signs_in(folder: Path) -> None:
    async with hosted(folder) as (made, run):
        tools = partial(toolweave, "tools", "--url", made.server.url, cwd=folder)
        refused = await anyio.to_thread.run_sync(tools)
        hint = " ".join(refused.err.split()).partition("sign in: toolweave ")[2]
        assert hint, refused.err
        login = await run(*shlex.split(hint.partition(";")[0]))
        listed = await anyio.to_thread.run_sync(tools)

    assert (refused.code, login.code, listed.code) == (3, 0, 0), login.err + listed.err


async def test_a_url_that_nobody_has_signed_in_to_stays_refused_and_says_what_to_do(folder: Path) -> None:
    async with hosted(folder) as (made, _):
        refused = await anyio.to_thread.run_sync(partial(toolweave, "tools", "--url", made.server.url, cwd=folder))
        sent = await anyio.to_thread.run_sync(
            partial(toolweave, "tools", "--url", made.server.url, "-H", "Authorization: Bearer mine", cwd=folder)
        )

    assert (refused.code, sent.code) == (3, 3)
    assert "toolweave auth login" in refused.err
    assert {*made.server.tokens()} == {"", "Bearer mine"}
    assert made.host.requests == []


@pytest.mark.parametrize("protocol", ["", "2025-03-26"])
async def test_a_server_that_asks_for_no_token_needs_no_sign_in(protocol: str, folder: Path) -> None:
    async with served_http(create_mcp_server("open", tools=[])) as url:
        entry = {"url": url, "auth": "oauth", **({"protocol": protocol} if protocol else {})}
        (folder / "open.json").write_text(json.dumps({"mcpServers": {"open": entry}}))
        login = partial(toolweave, "auth", "login", cwd=folder)
        named = await anyio.to_thread.run_sync(partial(login, "open", "--config", "open.json"))
        by_url = await anyio.to_thread.run_sync(partial(login, url, "--json"))

    assert named.code == 0, named.err
    assert named.out == "server 'open' asks for no token: no sign-in is needed\n"
    assert by_url.code == 0, by_url.err
    assert (by_url.json["state"], by_url.json["resource"], by_url.json["issuer"]) == ("not needed", url, None)
    assert await kept() == []


async def test_a_server_that_asks_for_a_token_it_does_not_explain_is_not_signed_in_to(folder: Path) -> None:
    server = create_mcp_server("closed", tools=[], auth=BearerAuth(tokens=["0123456789abcdef"]))
    async with served_http(server) as url:
        login = await anyio.to_thread.run_sync(partial(toolweave, "auth", "login", url, cwd=folder))

    assert login.code == 3
    assert "signing in is not possible" in login.err


async def test_without_a_browser_the_address_is_shown_and_the_redirect_can_be_pasted(folder: Path) -> None:
    async with hosted(folder):
        command = ["auth", "login", "api", "--config", "api.json", "--no-browser"]

        def paste() -> int:
            with on_terminal(*command, cwd=folder) as terminal:
                said = terminal.wait_for(r"shows here\.")
                url = next(word for word in said.split() if "/authorize?" in word)
                terminal.type(f"{location_of(url)}\n")
                terminal.wait_for("signed in until")
                return terminal.end()

        assert await anyio.to_thread.run_sync(paste) == 0
        assert len(await kept()) == 1


async def test_a_code_is_shown_for_another_device(folder: Path) -> None:
    async with hosted(folder) as (made, run):
        login = await run("auth", "login", "api", "--device")

    assert login.code == 0, login.err
    assert f"{made.host.url}/page" in login.err
    assert "its code is: WDJB-MJHT" in login.err


async def test_nobody_who_signs_in_in_time_is_an_error(folder: Path) -> None:
    async with hosted(folder) as (_, run):
        login = await run("auth", "login", "api", "--no-browser", "--timeout", "1", "--json")

    assert login.code == 3
    assert login.json["error"]["kind"] == "auth_required"
    assert await kept() == []


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"command": "true"}, "is a program; signing in is for servers that have a URL"),
        (
            {"url": "http://127.0.0.1:1/mcp", "auth": {"type": "oauth", "identity": "caller"}},
            "is called as each caller of a gateway",
        ),
        ({"url": "http://127.0.0.1:1/mcp", "auth": "0123456789"}, "gives its credentials by `auth` of type 'bearer'"),
        ({"url": "nonsense"}, "nonsense"),
    ],
)
def test_what_cannot_be_signed_in_to_says_why(entry: dict[str, Any], why: str, cli: Cli, folder: Path) -> None:
    (folder / "odd.json").write_text(json.dumps({"mcpServers": {"odd": entry}}))

    refused = cli("auth", "login", "odd", "--config", "odd.json")

    assert refused.code == 2
    assert why in refused.err


async def test_the_list_says_who_is_signed_in_where_and_until_when(folder: Path) -> None:
    async with hosted(folder) as (made, run):
        nobody = await run("auth", "list")
        for name in ("ann", "bob"):
            await run("auth", "login", "api", "--principal", name)
        listed = await run("auth", "list", "--config", "api.json")
        anns = await run("auth", "list", "--principal", "ann", "--config", "api.json", "--json")

    assert (nobody.code, nobody.out) == (0, "there are no sign-ins at any server\n")
    assert all(word in listed.out for word in ("api", "ann", "bob", "signed in until", made.host.issuer))
    (row,) = anns.json["sign_ins"]
    assert (row["servers"], row["principal"], row["state"]) == (["api"], "ann", "signed in")


@pytest.mark.parametrize(
    ("changes", "state", "text"),
    [
        ({"expires_at": 1.0}, "renewable", "signed in; its token is renewed at the next use"),
        ({"expires_at": 1.0, "refresh_token": None}, "expired", "expired since 1970-01-01 00:00 UTC"),
        ({"expires_at": 1e300, "refresh_token": None}, "signed in", "signed in until a time that no calendar has"),
        ({"expires_at": None}, "signed in", "signed in"),
        ({"access_token": ""}, "registered", "registered, not signed in"),
    ],
)
async def test_each_state_of_a_sign_in_has_its_words(
    changes: dict[str, Any], state: str, text: str, folder: Path
) -> None:
    async with hosted(folder) as (_, run):
        await run("auth", "login", "api")
        (record,) = await kept()
        await FileTokenStore().save(record.replace(**changes))
        listed = await run("auth", "list", "--json")
        shown = await run("auth", "list")

    assert listed.json["sign_ins"][0]["state"] == state
    assert text in shown.out


async def test_signing_out_revokes_what_it_can_and_deletes_always(folder: Path) -> None:
    async with hosted(folder) as (made, run):
        await run("auth", "login", "api")
        left = await run("auth", "logout", "api", "--json")
        again = await run("auth", "logout", "api")
        after = await run("tools")

    (one,) = left.json["signed_out"]
    assert (one["resource"], one["issuer"]) == (made.server.url, made.host.issuer)
    assert (again.code, again.out) == (0, "there were no sign-ins\n")
    assert after.code == 3


async def test_signing_out_of_everything_is_said_out_loud(folder: Path) -> None:
    async with hosted(folder) as (_, run):
        for name in ("ann", "bob"):
            await run("auth", "login", "api", "--principal", name)
        unsaid = await run("auth", "logout")
        both = await run("auth", "logout", "api", "--all")
        anns = await run("auth", "logout", "--all", "--principal", "ann")
        left = await kept()
        rest = await run("auth", "logout", "--all")

    assert [unsaid.code, both.code, anns.code, rest.code] == [2, 2, 0, 0]
    assert "name one server, or say --all" in unsaid.err
    assert "as ann" in anns.out
    assert [one.key.principal for one in left] == ["bob"]
    assert await kept() == []


async def test_status_and_doctor_say_who_is_signed_in(folder: Path) -> None:
    async with hosted(folder) as (made, run):
        before = await run("status", "--json")
        await run("auth", "login", "api")
        status, doctor = await run("status"), await run("doctor")
        as_json = await run("status", "--json")
        store = FileTokenStore()
        store.path.chmod(0o644)
        unread = await run("doctor")

    assert before.json["servers"]["api"]["sign_in"]["state"] == "none"
    assert "signed in until" in status.out
    assert "sign-in   signed in until" in doctor.out
    assert as_json.json["servers"]["api"]["sign_in"]["issuer"] == made.host.issuer
    assert "sign-in   not known: the file of tokens" in unread.out


async def test_tokens_that_others_can_read_are_an_error_of_the_command(folder: Path) -> None:
    async with hosted(folder) as (_, run):
        await run("auth", "login", "api")
        FileTokenStore().path.chmod(0o644)
        listed = await run("auth", "list")

    assert listed.code == 1
    assert "can be used by others (mode 0644): chmod 600" in listed.err


async def test_a_shell_completes_commands_options_and_servers(folder: Path) -> None:
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"api": {"url": "http://127.0.0.1:1/mcp"}}}))

    def completed(line: str) -> list[str]:
        env = {**os.environ, "_TOOLWEAVE_COMPLETE": "complete_bash", "COMP_WORDS": line}
        return toolweave(cwd=folder, env=env).out.split()

    assert completed("toolweave auth ") == ["login", "list", "logout"]
    assert completed("toolweave auth login ") == ["api"]
    assert completed("toolweave auth logout --a") == ["--all"]
