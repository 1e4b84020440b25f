"""An API whose client gets its tokens for itself, at an authorization server over real HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import jwt
import pytest

from tests.oauth.test_grants import KEYS, pem
from tests.oauth.world import AuthorizationHost, another_host, basic, form_of, refuse
from tests.openapi.documents import document, operation
from tests.openapi.mock_api import MockApi, MockResponse, Received
from toolweave import connect_mcp_servers
from toolweave.config import OAuth
from toolweave.errors import ConfigError, ErrorKind
from toolweave.openapi import openapi_tools

Serve = Callable[[dict[str, Any]], tuple[MockApi, str]]
CLIENT: dict[str, Any] = {"client_id": "me", "client_secret": "a-long-secret"}


def api_of(scheme: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a document whose only operation wants a token of a scheme."""
    get = operation(operationId="get", security=[{"login": ["read"]}])
    return document({"/a": {"get": get}}, components={"securitySchemes": {"login": scheme, **more}})


def flow(host: AuthorizationHost, path: str = "/token") -> dict[str, Any]:
    url = f"{host.url}{path}"
    return {"type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": url, "scopes": {"read": "Read."}}}}


def guarded(host: AuthorizationHost) -> Callable[[Received], MockResponse]:
    """Answer a request that has a good token."""

    def answer(request: Received) -> MockResponse:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        return MockResponse({"ok": True}) if token in host.tokens else MockResponse({"no": token}, 401)

    return answer


@pytest.mark.parametrize(
    "auth",
    [
        {"login": CLIENT},
        {"login": {"clientId": "me", "clientSecret": "a-long-secret", "scope": "read"}},
        {"login": OAuth(grant="client_credentials", **CLIENT)},
        OAuth(grant="client_credentials", **CLIENT),
        {"type": "oauth", "grant": "client_credentials", **CLIENT},
        CLIENT,
    ],
    ids=["by name", "camel case", "by name, a value", "a value", "of a config", "plain"],
)
async def test_a_client_gets_one_token_for_all_calls(api: Serve, auth: Any) -> None:
    async with another_host() as host:
        mock, url = api(source := api_of(flow(host)))
        mock.answers["GET /a"] = guarded(host)
        async with openapi_tools(source, base_url=url, auth=auth) as toolset:
            async with anyio.create_task_group() as group:
                for _ in range(5):
                    group.start_soon(toolset.execute, "get")
            assert not (await toolset.execute("get", {})).is_error

        [token] = [one for one in host.requests if one.path == "/token"]
        form = form_of(token)

    assert token.headers["authorization"] == basic("me", "a-long-secret")
    assert form["grant_type"] == "client_credentials"
    assert {name for name in form if name != "scope"} == {"grant_type"}  # nothing that such a server does not know
    assert len(mock.received) == 6


async def test_scopes_and_an_audience_are_asked_for(api: Serve) -> None:
    async with another_host() as host:
        mock, url = api(source := api_of(flow(host)))
        mock.answers["GET /a"] = guarded(host)
        auth = {"login": {**CLIENT, "scopes": ["read", "write"], "audience": "https://api.example"}}
        async with openapi_tools(source, base_url=url, auth=auth) as toolset:
            assert not (await toolset.execute("get", {})).is_error
        [form] = host.forms()

    assert (form["scope"], form["audience"]) == ("read write", "https://api.example")


async def test_a_token_is_renewed_before_it_ends_and_after_it_was_refused(api: Serve) -> None:
    async with another_host() as host:
        mock, url = api(source := api_of(flow(host)))
        mock.answers["GET /a"] = guarded(host)
        async with openapi_tools(source, base_url=url, auth={"login": CLIENT}) as toolset:
            assert not (await toolset.execute("get", {})).is_error
            host.tokens.clear()  # revoked
            refused = await toolset.execute("get", {})
            again = await toolset.execute("get", {})
        host.seconds = 1
        async with openapi_tools(source, base_url=url, auth={"login": CLIENT}) as toolset:
            await toolset.execute("get", {})
            await anyio.sleep(1)
            await toolset.execute("get", {})

    assert refused.require_error().kind is ErrorKind.AUTH_REQUIRED
    assert "access-" not in refused.text  # which the API has echoed
    assert not again.is_error
    assert len(host.forms()) == 4


async def test_a_server_that_reads_the_secret_in_the_form_alone_gets_it_there(api: Serve) -> None:
    async with another_host() as host:

        async def token(exchange: Any) -> None:
            form = form_of(exchange)
            good = form.get("client_id") == "me" and form.get("client_secret") == "a-long-secret"
            if not good or "authorization" in exchange.headers:
                await refuse(exchange, "invalid_client")
            else:
                host.tokens["T"] = ""
                await exchange.respond_json(200, {"access_token": "T", "token_type": "bearer"})

        host.answer["/token"] = token
        mock, url = api(source := api_of(flow(host)))
        mock.answers["GET /a"] = guarded(host)
        async with openapi_tools(source, base_url=url, auth={"login": CLIENT}) as toolset:
            assert not (await toolset.execute("get", {})).is_error
            host.tokens.clear()
            await toolset.execute("get", {})
            assert not (await toolset.execute("get", {})).is_error

    assert len(host.requests) == 3  # it is not asked the other way again


@pytest.mark.parametrize("scheme", ["openIdConnect", "http"])
async def test_the_token_endpoint_is_found_by_metadata(api: Serve, scheme: str) -> None:
    async with another_host() as host:
        where = f"{host.url}/.well-known/oauth-authorization-server"
        found, more = {"type": "openIdConnect", "openIdConnectUrl": where}, {}
        if scheme == "http":
            found, more = {"type": "http", "scheme": "bearer"}, {"metadata_url": where}
        mock, url = api(source := api_of(found))
        mock.answers["GET /a"] = guarded(host)
        async with openapi_tools(source, base_url=url, auth={"login": {**CLIENT, **more}}) as toolset:
            assert not (await toolset.execute("get", {})).is_error

    assert host.paths() == ["/.well-known/oauth-authorization-server", "/token"]


async def test_a_client_proves_itself_with_its_key(api: Serve) -> None:
    async with another_host() as host:
        mock, url = api(source := api_of(flow(host)))
        mock.answers["GET /a"] = guarded(host)
        auth = {"login": {"client_id": "me", "private_key": pem(KEYS["ES256"]), "algorithm": "ES256"}}
        async with openapi_tools(source, base_url=url, auth=auth) as toolset:
            assert not (await toolset.execute("get", {})).is_error
        [form] = host.forms()

    public: Any = KEYS["ES256"].public_key()
    claims = jwt.decode(form["client_assertion"], public, ["ES256"], audience=f"{host.url}/token")
    assert claims["iss"] == claims["sub"] == "me"


async def test_a_refusal_is_an_error_of_the_call_that_does_not_hold_the_secret(api: Serve) -> None:
    async with another_host() as host:

        async def token(exchange: Any) -> None:
            text = {"error": "invalid_scope", "error_description": f"not for {CLIENT['client_secret']}"}
            await exchange.respond_json(400, text)

        host.answer["/token"] = token
        mock, url = api(source := api_of(flow(host)))
        async with openapi_tools(source, base_url=url, auth={"login": CLIENT}) as toolset:
            refused = await toolset.execute("get", {})
            host.answer["/token"] = lambda exchange: exchange.respond(503)
            away = await toolset.execute("get", {})

    assert (refused.require_error().kind, "invalid_scope" in refused.text) == (ErrorKind.AUTH_REQUIRED, True)
    assert "no token for this API" in refused.text
    assert "HTTP 503" in away.text
    assert away.require_error().retryable
    assert mock.received == []  # the API was not asked without one


async def test_a_token_endpoint_at_an_address_that_nobody_named_is_not_asked() -> None:
    async with another_host() as host:
        source = api_of(flow(host))
        async with openapi_tools(source, base_url="https://93.184.216.34", auth={"login": CLIENT}) as toolset:
            result = await toolset.execute("get", {})

    assert "loopback address, and no server with such an address named it" in result.text
    assert host.requests == []


ELSEWHERE = {"type": "oauth2", "flows": {"authorizationCode": {"tokenUrl": "https://a.example/token"}}}


@pytest.mark.parametrize(
    ("scheme", "auth", "said"),
    [
        (ELSEWHERE, {"login": CLIENT}, "'login' does not say where a client gets tokens: give 'metadata_url'"),
        (ELSEWHERE, {"login": {**CLIENT, "grant": "device_code"}}, "'client_credentials', or a token"),
        (ELSEWHERE, {"login": {**CLIENT, "dpop": True}}, "an API is sent bearer tokens"),
        (ELSEWHERE, {"login": {"client_id": "me"}}, "'client_secret' or 'private_key'"),
        ({"type": "http", "scheme": "bearer"}, CLIENT, "has 0 security schemes of OAuth"),
    ],
)
def test_a_client_that_cannot_get_a_token_is_refused(scheme: dict[str, Any], auth: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        openapi_tools(api_of(scheme), base_url="https://a.example", auth=auth)


def test_a_client_with_two_schemes_has_to_name_one() -> None:
    source = api_of(ELSEWHERE, other=ELSEWHERE)

    with pytest.raises(ConfigError, match="has 2 security schemes of OAuth"):
        openapi_tools(source, base_url="https://a.example", auth=CLIENT)


@pytest.mark.parametrize(
    "keys",
    [
        {"auth": {"login": CLIENT}},
        {"auth": {"type": "oauth", "grant": "client_credentials", **CLIENT}},
        {"auth": CLIENT},
        {"oauth": CLIENT},
    ],
    ids=["by name", "oauth", "plain", "oauth beside"],
)
async def test_an_entry_of_a_config_names_a_client(keys: dict[str, Any], api: Serve, tmp_path: Path) -> None:
    async with another_host() as host:
        mock, url = api(source := api_of(flow(host)))
        mock.answers["GET /a"] = guarded(host)
        (tmp_path / "api.json").write_text(json.dumps(source))
        entry = {"openapi": str(tmp_path / "api.json"), "base_url": url, **keys}
        async with connect_mcp_servers({"mcpServers": {"a": entry}}) as hub:
            result = await hub.execute("a_get", {})
            [client] = hub.clients.values()

    assert not result.is_error, result.text
    assert CLIENT["client_secret"] not in " ".join(client.config.args)
    assert CLIENT["client_secret"] not in repr(client.config)
