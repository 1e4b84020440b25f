"""The identity provider behind an `OAuthServer`, and the endpoints and parameters of well-known providers.

For the provider this server is one client with one redirect URI, which was registered there by hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from urllib.parse import urlsplit

from toolweave._option_checks import MAPPING, TEXT, TEXTS, check_choice, check_kinds
from toolweave.config import Secret
from toolweave.errors import ConfigError
from toolweave.serve._auth.documents import check_issuer_url
from toolweave.serve._option_kinds import SECRET_TEXT

_SHARED_TENANTS = frozenset({"common", "organizations", "consumers"})
_TEXTS = ("client_id", "issuer", "authorization_endpoint", "token_endpoint", "userinfo_endpoint", "subject")
_KINDS = {
    **dict.fromkeys(_TEXTS, TEXT),
    "client_secret": SECRET_TEXT.or_none,
    "scopes": TEXTS,
    "parameters": MAPPING,
    "algorithms": TEXTS,
}


def _nothing() -> dict[str, str]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """An identity provider, where people sign in.

    `Upstream.oidc(ISSUER, ...)` is any OpenID provider; `github`, `google`, `entra`, `okta`, `auth0` and
    `keycloak` know the provider's endpoints and parameters.

    Attributes:
        client_id: The client that this server is there.
        client_secret: Its secret.
        issuer: The issuer, whose metadata name the endpoints; empty for a provider that publishes none.
        authorization_endpoint: Where people sign in, of a provider without metadata.
        token_endpoint: Where codes are redeemed, of a provider without metadata.
        userinfo_endpoint: The address of the user's profile, of a provider without ID tokens.
        scopes: The scopes that this server asks for.
        parameters: More parameters of the authorization request.
        method: How this server authenticates there.
        subject: The claim that identifies a person, for ever.
        algorithms: The accepted signature algorithms of ID tokens.

    Raises:
        ConfigError: A URL is no `https` URL (`http` is accepted for this machine), or something is missing.
        TypeError: A value has another type.
        ValueError: `method` is not known.
    """

    client_id: str
    client_secret: Secret | str | None = field(default=None, repr=False)
    issuer: str = ""
    authorization_endpoint: str = ""
    token_endpoint: str = ""
    userinfo_endpoint: str = ""
    scopes: Sequence[str] = ("openid",)
    parameters: Mapping[str, str] = field(default_factory=_nothing)
    method: Literal["client_secret_basic", "client_secret_post"] = "client_secret_basic"
    subject: str = "sub"
    algorithms: Sequence[str] = ("RS256", "ES256", "PS256")

    def __post_init__(self) -> None:
        check_kinds(self, _KINDS, owner="Upstream")
        check_choice("Upstream.method", self.method, ("client_secret_basic", "client_secret_post"))
        if not self.client_id:
            raise ConfigError("Upstream needs client_id=, as which this server is registered at the provider")
        named = {
            name: getattr(self, name) for name in ("authorization_endpoint", "token_endpoint", "userinfo_endpoint")
        }
        if self.issuer:
            check_issuer_url(self.issuer, "Upstream.issuer")
            if "openid" not in self.scopes:
                raise ConfigError(
                    "Upstream.scopes of an OpenID provider must have 'openid', so that it says who signs in"
                )
            return
        for name, url in named.items():
            if not url:
                raise ConfigError(f"Upstream needs issuer=, or {name}= for a provider without metadata")
            check_issuer_url(url, f"Upstream.{name}")

    @property
    def named(self) -> str:
        """The identifier of the provider: its issuer, or the origin of its endpoints."""
        if self.issuer:
            return self.issuer
        parts = urlsplit(self.authorization_endpoint)
        return f"{parts.scheme}://{parts.netloc}"

    @classmethod
    def oidc(cls, issuer: str, client_id: str, client_secret: Secret | str | None = None, **options: Any) -> Upstream:
        """Return an OpenID provider; `options` are the other attributes."""
        # Without a refresh token, nobody would notice that a person has left until the grant ends.
        options.setdefault("scopes", ("openid", "offline_access"))
        return cls(issuer=issuer, client_id=client_id, client_secret=client_secret, **options)

    @classmethod
    def github(cls, client_id: str, client_secret: Secret | str, **options: Any) -> Upstream:
        """Return GitHub: an OAuth app or a GitHub App. It has no metadata; its API returns the user."""
        options.setdefault("scopes", ("read:user",))
        return cls(
            client_id=client_id,
            client_secret=client_secret,
            authorization_endpoint="https://github.com/login/oauth/authorize",
            token_endpoint="https://github.com/login/oauth/access_token",  # noqa: S106
            userinfo_endpoint="https://api.github.com/user",
            method="client_secret_post",
            # not the login, which can be renamed and then belong to another user
            subject="id",
            **options,
        )

    @classmethod
    def google(cls, client_id: str, client_secret: Secret | str, **options: Any) -> Upstream:
        """Return Google. It gives refresh tokens for `access_type=offline`, and again only when it asks for consent."""
        options.setdefault("scopes", ("openid", "email"))
        options.setdefault("parameters", {"access_type": "offline", "prompt": "consent"})
        return cls(
            client_id=client_id,
            client_secret=client_secret,
            issuer="https://accounts.google.com",
            method="client_secret_post",
            **options,
        )

    @classmethod
    def entra(cls, tenant: str, client_id: str, client_secret: Secret | str, **options: Any) -> Upstream:
        """Return Microsoft Entra ID: one tenant, by its id. It refuses the parameter `resource`, which is not sent.

        Raises:
            ConfigError: The tenant is a shared one: its tokens are of other issuers.
        """
        if tenant in _SHARED_TENANTS:
            raise ConfigError(f"Upstream.entra needs the id of one tenant, not {tenant!r}")
        options.setdefault("scopes", ("openid", "profile", "offline_access"))
        # `sub` differs between applications
        options.setdefault("subject", "oid")
        issuer = f"https://login.microsoftonline.com/{tenant}/v2.0"
        return cls(
            client_id=client_id, client_secret=client_secret, issuer=issuer, method="client_secret_post", **options
        )

    @classmethod
    def okta(
        cls,
        domain: str,
        client_id: str,
        client_secret: Secret | str,
        *,
        server: str | None = "default",
        **options: Any,
    ) -> Upstream:
        """Return Okta: a domain such as `example.okta.com`, and an authorization server there, None for its own."""
        if server is None:
            issuer = f"https://{domain}"
        else:
            issuer = f"https://{domain}/oauth2/{server}"
        return cls.oidc(issuer, client_id, client_secret, **options)

    @classmethod
    def auth0(cls, domain: str, client_id: str, client_secret: Secret | str, **options: Any) -> Upstream:
        """Return Auth0: a domain such as `example.eu.auth0.com`; its issuer ends in a slash."""
        return cls.oidc(f"https://{domain}/", client_id, client_secret, **options)

    @classmethod
    def keycloak(cls, url: str, realm: str, client_id: str, client_secret: Secret | str, **options: Any) -> Upstream:
        """Return Keycloak: its URL, such as `https://login.example`, and a realm."""
        return cls.oidc(f"{url.rstrip('/')}/realms/{realm}", client_id, client_secret, **options)

    def with_parameters(self, **parameters: str) -> Upstream:
        """Return a copy with more parameters of the authorization request, such as `hd="example.com"`."""
        return replace(self, parameters={**self.parameters, **parameters})
