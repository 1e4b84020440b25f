"""Options of authorizations: a misspelled one is refused, as it would leave the server open."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from toolweave import create_mcp_server
from toolweave.errors import ConfigError
from toolweave.serve import ApiKey, ApiKeyAuth, BearerAuth, IntrospectionAuth, JwtAuth, OAuthServer, Upstream
from toolweave.serve._auth.token_auth import ProtectionOptions, TokenAuth
from toolweave.state import MemoryStore

TOKEN = "alice-0123456789abcdef"
ISSUER = "https://login.example"
AUDIENCE = "https://api.example/mcp"
UPSTREAM = Upstream.oidc(ISSUER, "client", "secret")


def own_auth(**options: Any) -> TokenAuth:
    class OwnAuth(TokenAuth):
        """An authorization of an application."""

    return OwnAuth(lambda token: token, **options)


MAKERS: dict[str, Callable[..., TokenAuth]] = {
    "OwnAuth": own_auth,
    "BearerAuth": partial(BearerAuth, tokens=[TOKEN]),
    "ApiKeyAuth": partial(ApiKeyAuth, [ApiKey(name="a", key=TOKEN)]),
    "JwtAuth": partial(JwtAuth, issuer=ISSUER, audience=AUDIENCE),
    "IntrospectionAuth": partial(IntrospectionAuth, issuer=ISSUER, audience=AUDIENCE, client_id="c", client_secret="s"),
    "OAuthServer": partial(OAuthServer, url=AUDIENCE, upstream=UPSTREAM, store=MemoryStore(), secret="s" * 32),
}


@pytest.mark.parametrize("owner", MAKERS)
@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("required_scope", "required_scopes"),
        ("requiredScopes", "required_scopes"),
        ("scope", "scopes"),
        ("dpops", "dpop"),
        ("api_key", "api_keys"),
        ("authorization_server", "authorization_servers"),
    ],
)
def test_a_misspelled_option_of_an_authorization_is_refused_with_the_nearest_name(
    owner: str, name: str, meant: str
) -> None:
    with pytest.raises(TypeError, match=rf"^{owner} has no option '{name}'; did you mean '{meant}'\?$"):
        MAKERS[owner](**{name: ["admin"]})


@pytest.mark.parametrize("owner", MAKERS)
def test_an_option_that_resembles_no_other_is_refused_with_all_names(owner: str) -> None:
    with pytest.raises(
        TypeError, match="no option 'zzz'; known: required_scopes, scopes, resource, authorization_serv"
    ):
        MAKERS[owner](zzz=1)


@pytest.mark.parametrize("name", sorted(ProtectionOptions.__annotations__.keys() - {"resource", "api_keys"}))
@pytest.mark.parametrize("owner", ["JwtAuth", "IntrospectionAuth"])
def test_every_option_of_an_authorization_is_accepted_by_its_name(owner: str, name: str) -> None:
    good: dict[str, Any] = {"scopes": None, "dpop": None, "authorization_servers": [ISSUER]}
    MAKERS[owner](**{name: good.get(name, ["read"])})


@pytest.mark.parametrize(("name", "value"), [("resource", AUDIENCE), ("authorization_servers", [ISSUER])])
def test_an_authorization_server_refuses_options_that_follow_from_its_url(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"OAuthServer takes '{name}' from its 'url'; leave it out"):
        MAKERS["OAuthServer"](**{name: value})


def test_api_keys_are_given_once() -> None:
    with pytest.raises(TypeError, match="ApiKeyAuth has no option 'api_keys': its first argument has the keys"):
        MAKERS["ApiKeyAuth"](api_keys=[ApiKey(name="b", key=TOKEN[::-1])])


def test_a_misspelled_option_is_refused_on_the_transport_that_has_no_use_for_it_either() -> None:
    with pytest.raises(TypeError, match=r"run\(\) has no option 'allowed_host'; did you mean 'allowed_hosts'\?"):
        create_mcp_server("s").run("stdio", allowed_host=["x"])  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
