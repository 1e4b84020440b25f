"""Who may call a gateway: API keys and tokens by its config, for the gateway and for each virtual server."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.gateway.running import gateway, upstream, write_gateway_config
from tests.serve.carriers import EACH_ERA
from tests.serve.exchanges import Answer, exchange
from tests.serve.issuer import Issuer, running_issuer
from tests.serve.serving import served_app, served_http
from toolweave import AuthRequiredError, CallContext, connect_mcp, create_mcp_server
from toolweave.errors import ConfigError
from toolweave.gateway import GatewayManager, GatewayOptions, create_gateway, load_gateway_config
from toolweave.serve import ApiKey, ApiKeyAuth, ApiKeys, BearerAuth, JwtAuth

TEST_SECONDS = 60

BOUND = 60
KEY_OF_CI, KEY_OF_ADA = "key-of-ci-0123456789", "key-of-ada-0123456789"
URL = "http://127.0.0.1:8000/mcp"
SECRET = "a secret of thirty-two bytes or more, for sure"


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def who(ctx: CallContext) -> str:
    """Say whose call this is."""
    return str(ctx.principal)


def remove(name: str) -> str:
    """Remove something."""
    return f"removed {name}"


def config_of(auth: Any, **section: Any) -> dict[str, Any]:
    """A gateway of one server in this process, under an authorization."""
    server = create_mcp_server(name="notes", version="1", tools=[who, remove])
    return {"mcpServers": {"notes": {"server": server}}, "gateway": {"auth": auth, **section}}


@asynccontextmanager
async def serving(config: Any, **options: Any) -> AsyncGenerator[tuple[GatewayManager, str]]:
    """Serve a gateway by its config."""
    manager = GatewayManager(config, GatewayOptions(**options))
    async with served_app(manager.asgi_app()) as base:
        yield manager, base


async def names(url: str, token: str) -> list[str]:
    """The names of the tools that a token shows."""
    async with connect_mcp({"url": url, "auth": token}) as caller:
        return sorted((await caller.list_tools()).names)


async def refused(url: str, token: str) -> bool:
    """Whether a token is refused."""
    try:
        await names(url, token)
    except AuthRequiredError:
        return True
    return False


async def post(base: str, path: str, token: str = "") -> Answer:
    """Send a request, with a token or without."""
    headers = {"content-type": "application/json", **({"authorization": f"Bearer {token}"} if token else {})}
    return await exchange(base, path=path, body=b"{}", headers=headers)


async def get(base: str, path: str) -> Answer:
    """Read a public document."""
    return await exchange(base, method="GET", path=path)


@EACH_ERA
async def test_a_program_with_an_api_key_calls_and_others_do_not(era: str) -> None:
    auth = {"api_keys": {"ci": KEY_OF_CI, "ada": {"sha256": digest(KEY_OF_ADA)}}}
    async with serving(config_of(auth)) as (_, base):
        for key in (KEY_OF_CI, KEY_OF_ADA):
            async with connect_mcp({"url": f"{base}/mcp", "auth": key, "protocol": era}) as caller:
                assert len((await caller.list_tools()).names) == 2
        for wrong in ("key-of-eve-0123456789", digest(KEY_OF_ADA), KEY_OF_CI.upper()):
            assert await refused(f"{base}/mcp", wrong)
        assert (await post(base, "/mcp")).status == 401


async def test_rules_know_the_claims_of_an_api_key_and_scopes_hold_for_it() -> None:
    auth = {
        "api_keys": {
            "ci": {"key": KEY_OF_CI, "scopes": ["call"], "claims": {"team": "platform"}},
            "ada": {"key": KEY_OF_ADA, "scopes": ["call", "remove"]},
            "new": {"key": "key-of-new-0123456789"},
        },
        "required_scopes": ["call"],
        "scopes": {"tools": {"notes_remove": ["remove"]}, "hide": True},
    }
    rules = [
        {"effect": "allow", "names": ["notes_who"], "claims": {"team": ["platform"]}},
        {"effect": "allow", "names": ["notes_remove"]},
    ]
    config = config_of(auth, middleware=[{"name": "access_rules", "rules": rules}])
    async with serving(config) as (_, base):
        assert await names(f"{base}/mcp", KEY_OF_CI) == ["notes_who"]
        assert await names(f"{base}/mcp", KEY_OF_ADA) == ["notes_remove"]
        answer = await post(base, "/mcp", "key-of-new-0123456789")
        assert (answer.status, "insufficient_scope" in answer.headers["www-authenticate"]) == (403, True)


async def test_a_claim_that_no_api_key_has_is_named_when_the_gateway_starts(caplog: pytest.LogCaptureFixture) -> None:
    keys = {"api_keys": {"ci": {"key": KEY_OF_CI, "claims": {"team": "platform", "realm": {"roles": ["dev"]}}}}}
    rules = [
        {"effect": "allow", "claims": {"team": "x", "realm.roles": "dev"}},
        {"effect": "deny", "claims": {"tema": 1}},
    ]
    entries = [{"name": "access_rules", "rules": rules}]
    views = {"small": {"middleware": [{"name": "access_rules", "rules": [{"effect": "allow", "claims": {"a.b": 1}}]}]}}
    async with serving(config_of(keys, middleware=entries, virtual=views)) as (manager, _):
        warnings = [one for one in manager.status().warnings if "claim" in one]
    logged = [one.getMessage() for one in caplog.records if "claim" in one.getMessage()]

    step = "add it to 'claims' of a key, or correct the name"
    assert warnings == [
        f"gateway: no API key has the claim 'tema' of a rule of 'gateway.middleware'; {step}",
        f"gateway: no API key has the claim 'a.b' of a rule of 'gateway.virtual.small.middleware'; {step}",
    ]
    assert logged == warnings


async def test_a_claim_for_headers_or_arguments_of_a_server_that_no_api_key_has_is_a_warning() -> None:
    keys = {"api_keys": {"ci": {"key": KEY_OF_CI, "claims": {"mail": "ci@corp.example"}}}}
    headers = {"X-Person": "mail", "X-Tenant": "org.name"}
    shape = [{"tools": ["find"], "arguments": {"by": {"claim": "mail"}, "tenant": {"claim": "org.name"}}}]
    entry = {"url": "https://crm.example/mcp", "claim_headers": headers, "shape": shape}
    loaded = load_gateway_config({"mcpServers": {"crm": entry}, "gateway": {"auth": keys}})

    users = "'claim_headers' of server 'crm' and 'shape' of server 'crm'"
    step = "add it to 'claims' of a key, or correct the name"
    assert [one for one in loaded.warnings if "claim" in one] == [
        f"gateway: no API key has the claim 'org.name' of {users}; {step}"
    ]


@pytest.mark.slow
async def test_teams_and_roles_of_an_issuer_decide_what_a_person_sees() -> None:
    team = {"effect": "allow", "names": ["notes_who"], "claims": {"https://corp.example/teams": ["platform", "data"]}}
    role = {"effect": "allow", "names": ["notes_remove"], "claims": {"realm_access.roles": "admin"}}
    middleware = [{"name": "access_rules", "rules": [team, role]}]
    expected: list[tuple[dict[str, Any], list[str]]] = [
        ({"https://corp.example/teams": ["sales", "data"]}, ["notes_who"]),
        ({"realm_access": {"roles": ["user", "admin"]}}, ["notes_remove"]),
        (
            {"https://corp.example/teams": ["platform"], "realm_access": {"roles": ["admin"]}},
            ["notes_remove", "notes_who"],
        ),
        ({"https://corp.example/teams": "Platform", "realm_access": {"roles": ["administrator"]}}, []),
        ({"realm_access": "admin"}, []),
        ({}, []),
    ]
    with running_issuer() as issuer, anyio.fail_after(BOUND):
        issuer.publish()
        auth = {"jwt": {"issuer": issuer.url, "audience": URL}}
        async with serving(config_of(auth, middleware=middleware)) as (manager, base):
            shown = [await names(f"{base}/mcp", issuer.token(aud=URL, **claims)) for claims, _ in expected]
            assert manager.status().warnings == ()

    assert shown == [tools for _, tools in expected]


async def test_an_api_key_ends_at_its_time_and_two_keys_of_one_name_are_one_caller() -> None:
    keys = ApiKeys(
        [
            ApiKey(name="ci", key=KEY_OF_CI),
            ApiKey(name="ci", sha256=digest(KEY_OF_ADA)),
            ApiKey(name="old", key="key-of-old-0123456789", expires_at=time.time() - 1),
        ]
    )
    first, second = keys.find(KEY_OF_CI), keys.find(KEY_OF_ADA)
    assert first is not None
    assert second is not None
    assert first.principal == second.principal
    assert keys.find("key-of-old-0123456789") is None
    assert KEY_OF_CI not in repr(ApiKey(name="ci", key=KEY_OF_CI))


@asynccontextmanager
async def of_an_issuer(**section: Any) -> AsyncGenerator[tuple[Issuer, str]]:
    """Serve a gateway to the tokens of an issuer, and to an API key; yields the issuer and the base of the gateway."""
    with running_issuer() as issuer:
        issuer.publish()
        auth = {"jwt": {"issuer": issuer.url, "audience": URL}, "api_keys": {"ci": KEY_OF_CI}, **section}
        async with serving(config_of(auth, virtual={"readers": {"include": ["who"]}})) as (_, base):
            yield issuer, base


@pytest.mark.slow
async def test_tokens_of_an_issuer_and_api_keys_are_good_side_by_side() -> None:
    async with of_an_issuer() as (issuer, base):
        for token in (KEY_OF_CI, issuer.token(aud=URL)):
            assert len(await names(f"{base}/mcp", token)) == 2
            assert await names(f"{base}/mcp/readers", token) == ["notes_who"]
        wrongs: list[Any] = [{"aud": "https://other.example/mcp"}, {"iss": "https://other.example"}, {"exp": 1}]
        for wrong in wrongs:
            claims: dict[str, Any] = {"aud": URL, **wrong}
            assert await refused(f"{base}/mcp", issuer.token(**claims))


@pytest.mark.slow
async def test_each_virtual_server_is_a_resource_of_its_own_with_its_own_metadata() -> None:
    async with of_an_issuer(scopes_supported=["call"]) as (issuer, base):
        for path in ("/mcp", "/mcp/readers"):
            document = (await get(base, f"/.well-known/oauth-protected-resource{path}")).json()
            assert document["resource"] == f"http://127.0.0.1:8000{path}"
            assert document["authorization_servers"] == [issuer.url]
            answer = await post(base, path)
            where = f'resource_metadata="http://127.0.0.1:8000/.well-known/oauth-protected-resource{path}"'
            assert where in answer.headers["www-authenticate"]
        assert (await get(base, "/.well-known/oauth-protected-resource/mcp/nobody")).status == 404

        of_readers = issuer.token(aud=f"{URL}/readers")
        assert await names(f"{base}/mcp/readers", of_readers) == ["notes_who"]
        assert await refused(f"{base}/mcp", of_readers)
        assert await refused(f"{base}/mcp/readers", issuer.token(aud=f"{URL}/writers"))


async def test_a_virtual_server_that_goes_takes_its_metadata_along(tmp_path: Path) -> None:
    auth = {"jwt": {"issuer": "https://login.example", "audience": URL, "key": SECRET, "algorithms": ["HS256"]}}
    path = "/.well-known/oauth-protected-resource/mcp"
    config = write_gateway_config(tmp_path, {}, {"auth": auth, "virtual": {"v": {}}})
    async with serving(config, watch=False) as (manager, base):
        assert (await get(base, f"{path}/v")).status == 200
        write_gateway_config(tmp_path, {}, {"auth": auth, "virtual": {"w": {}}})
        assert (await manager.reload()).error is None
        await anyio.wait_all_tasks_blocked()
        assert [(await get(base, path + one)).status for one in ("", "/v", "/w")] == [200, 404, 200]


async def test_keys_come_and_go_with_the_config_and_other_changes_are_refused(tmp_path: Path) -> None:
    def write(auth: Any) -> Path:
        return write_gateway_config(tmp_path, {}, {"auth": auth, "virtual": {"v": {}}})

    config = write({"api_keys": {"ci": KEY_OF_CI}})
    async with serving(config, watch=False) as (manager, base):
        assert not await refused(f"{base}/mcp/v", KEY_OF_CI)
        write({"api_keys": {"ada": {"sha256": digest(KEY_OF_ADA)}}})
        assert (await manager.reload()).error is None
        for path in ("/mcp", "/mcp/v"):
            assert await refused(base + path, KEY_OF_CI)
            assert not await refused(base + path, KEY_OF_ADA)

        write({"api_keys": {"ci": KEY_OF_CI}, "required_scopes": ["call"]})
        assert "only API keys are followed" in str((await manager.reload()).error)
        assert await refused(f"{base}/mcp", KEY_OF_CI)


@pytest.mark.slow
def test_secrets_come_from_variables_and_files_and_are_shown_nowhere(tmp_path: Path) -> None:
    (tmp_path / "key.txt").write_text(f"{KEY_OF_ADA}\n")
    auth = {"api_keys": {"ci": "${KEY_OF_CI}", "ada": {"key": "${file:key.txt}"}}, "required_scopes": ["call"]}
    config = write_gateway_config(tmp_path, {"a": upstream(tmp_path, "a")}, {"auth": auth})
    with gateway(tmp_path, config, env={"KEY_OF_CI": KEY_OF_CI}) as running:
        for key in (KEY_OF_CI, KEY_OF_ADA):
            headers = {"authorization": f"Bearer {key}", "accept": "application/json, text/event-stream"}
            assert running.spoken("POST", "/mcp", {}, headers).status == 403
        assert running.spoken("POST", "/mcp", {}).status == 401
        arguments = Path(f"/proc/{running.process.pid}/cmdline").read_text()
        for text in (running.log, arguments, json.dumps(running.status())):
            assert KEY_OF_CI not in text
            assert KEY_OF_ADA not in text


def test_what_a_config_holds_of_keys_is_in_no_representation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JWT_KEY", SECRET)
    auth = {
        "api_keys": {"ci": {"key": KEY_OF_CI}},
        "jwt": {"issuer": "https://i.example", "audience": "x", "key": "${JWT_KEY}", "algorithms": ["HS256"]},
    }
    loaded = load_gateway_config(config_of(auth))
    assert loaded.auth is not None
    assert isinstance(loaded.auth.build(), JwtAuth)
    for text in (repr(loaded.auth), repr(loaded.auth.build())):
        assert KEY_OF_CI not in text
        assert SECRET not in text


JWT = {"issuer": "https://login.example", "audience": "https://tools.example/mcp"}
OAUTH_SERVER = {"url": URL, "secret": SECRET, "provider": {"type": "github", "client_id": "c", "client_secret": "s"}}
WRONG: list[tuple[Any, str, str]] = [
    ({}, "gateway.auth", "needs 'api_keys', or one of jwt, introspection, oauth_server"),
    ([], "gateway.auth", "must be an object"),
    ({"api_keys": {}}, "gateway.auth", "needs 'api_keys'"),
    ({"api_kyes": {}, "jwt": JWT}, "gateway.auth.api_kyes", "did you mean 'api_keys'"),
    ({"api_keys": {"ci": "short"}}, "gateway.auth.api_keys.ci", "16 characters or more"),
    ({"api_keys": {"ci": "${TOOLWEAVE_TEST_UNSET}"}}, "gateway.auth.api_keys.ci", "TOOLWEAVE_TEST_UNSET is not set"),
    ({"api_keys": {"ci": {}}}, "gateway.auth.api_keys.ci", "needs 'key' or 'sha256'"),
    ({"api_keys": {"ci": {"sha256": "abc"}}}, "gateway.auth.api_keys.ci", "64 hexadecimal digits"),
    (
        {"api_keys": {"ci": {"key": KEY_OF_CI, "scope": ["x"]}}},
        "gateway.auth.api_keys.ci.scope",
        "did you mean 'scopes'",
    ),
    ({"api_keys": {"ci": {"key": KEY_OF_CI, "scopes": ["a b"]}}}, "gateway.auth.api_keys.ci", "is not a valid scope"),
    ({"api_keys": {"ci": {"key": KEY_OF_CI, "expires_at": "soon"}}}, "gateway.auth.api_keys.ci.expires_at", "a time"),
    (
        {"api_keys": {"ci": {"key": KEY_OF_CI, "expires_at": 1_900_000_000_000}}},
        "gateway.auth.api_keys.ci",
        "not in milliseconds",
    ),
    ({"api_keys": {"a": KEY_OF_CI, "b": KEY_OF_CI}}, "gateway.auth", "are the same key"),
    ({"jwt": JWT, "introspection": {}}, "gateway.auth", "jwt and introspection; one of them"),
    ({"jwt": {"issuer": "https://login.example"}}, "gateway.auth.jwt.audience", "needs 'audience'"),
    ({"jwt": {**JWT, "algorithms": "RS256"}}, "gateway.auth.jwt.algorithms", "Expected `array`"),
    ({"jwt": {**JWT, "issuer": "http://login.example"}}, "gateway.auth.jwt", "plain http"),
    ({"jwt": {**JWT, "algorithms": ["none"]}}, "gateway.auth.jwt", "'none' is not one"),
    ({"jwt": JWT, "required_scopes": ['a"b']}, "gateway.auth.jwt", "is not a valid scope"),
    ({"jwt": JWT, "scopes": {"tools": {"x": ["a b"]}}}, "gateway.auth.scopes", "is not a valid scope"),
    ({"jwt": JWT, "scopes": {"tool": {}}}, "gateway.auth.scopes.tool", "did you mean 'tools'"),
    ({"jwt": JWT, "dpop": "yes"}, "gateway.auth.dpop", "gateway.auth.dpop"),
    ({"oauth_server": {**OAUTH_SERVER, "secret": "short"}}, "gateway.auth.oauth_server", "32"),
    ({"oauth_server": {**OAUTH_SERVER, "store": "ftp://x"}}, "gateway.auth.oauth_server.store", "no store is known"),
    ({"oauth_server": {**OAUTH_SERVER, "provider": {}}}, "gateway.auth.oauth_server.provider.type", "one of oidc"),
    (
        {"oauth_server": {**OAUTH_SERVER, "provider": {"type": "github", "client_id": "c"}}},
        "gateway.auth.oauth_server.provider",
        "client_secret",
    ),
]


@pytest.mark.parametrize("auth, field, message", WRONG)
def test_a_setting_that_is_wrong_is_named(tmp_path: Path, auth: Any, field: str, message: str) -> None:
    path = write_gateway_config(tmp_path, {"a": {"command": "x"}}, {"auth": auth})

    with pytest.raises(ConfigError) as caught:
        load_gateway_config(path)

    assert caught.value.field == field
    assert message in str(caught.value)
    assert caught.value.path == str(path)
    assert caught.value.line is not None
    assert KEY_OF_CI not in str(caught.value)


def test_every_kind_of_authorization_is_made_with_its_settings() -> None:
    def made(auth: Any) -> Any:
        loaded = load_gateway_config(config_of(auth)).auth
        assert loaded is not None
        return loaded.build()

    introspection = {"client_id": "c", "client_secret": "s", **JWT}
    by_introspection = made({"introspection": introspection, "dpop": "required", "required_scopes": ["call"]})
    assert by_introspection.resource == JWT["audience"]
    assert by_introspection.required_scopes == ("call",)
    assert by_introspection.proofs.rules.required
    allow = {"hd": ["company.example"], "groups": "staff"}
    server = made({"oauth_server": {**OAUTH_SERVER, "allow": allow}, "scopes_supported": ["call"], "dpop": True})
    assert server.metadata()["scopes_supported"] == ["call"]
    assert server.allow({"hd": "company.example", "groups": ["guests", "staff"]})
    assert not server.allow({"hd": "other.example", "groups": ["staff"]})
    assert not server.allow({"hd": "company.example"})
    inner = made({"oauth_server": {**OAUTH_SERVER, "allow": {"realm_access.roles": ["admin"]}}, "scopes_supported": []})
    assert inner.allow({"realm_access": {"roles": ["admin", "user"]}})
    assert not inner.allow({"realm_access": {"roles": ["user"]}, "roles": ["admin"]})
    keys = made({"api_keys": {"ci": {"key": KEY_OF_CI, "expires_at": "2000-01-01"}}, "resource": URL} | _issuers())
    assert keys.api_keys.find(KEY_OF_CI) is None
    assert keys.authorization_servers == ("https://login.example",)


def _issuers() -> dict[str, Any]:
    return {"authorization_servers": ["https://login.example"]}


def auth_of(kind: str) -> Any:
    made: dict[str, Callable[[], Any]] = {
        "keys": lambda: ApiKeyAuth([ApiKey(name="ci", key=KEY_OF_CI)]),
        "beside": lambda: BearerAuth(tokens=["some-other-token-0123"], api_keys=[ApiKey(name="ci", key=KEY_OF_CI)]),
    }
    return made[kind]()


@pytest.mark.parametrize("kind", ["keys", "beside"])
async def test_a_gateway_from_code_is_served_with_its_authorization(kind: str) -> None:
    server = create_mcp_server(name="notes", version="1", tools=[who])
    made = create_gateway({"notes": {"server": server}}, auth=auth_of(kind))
    async with served_http(made) as url:
        assert await names(url, KEY_OF_CI) == ["notes_who"]
        assert await refused(url, "key-of-eve-0123456789")


def test_an_authorization_without_a_key_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least one key"):
        ApiKeyAuth([])


def test_the_config_of_the_page_is_valid() -> None:
    loaded = load_gateway_config(Path(__file__).parents[2] / "docs_src" / "gateway_callers.json")
    assert loaded.auth is not None
    assert loaded.auth.build().required_scopes == ("read",)
