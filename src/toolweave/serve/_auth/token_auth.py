"""Authorization of requests by tokens: the base, and tokens that are listed or looked up by a function."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import copy
from functools import partial
from typing import Protocol, Self, TypeAlias, TypedDict, Unpack, runtime_checkable

import msgspec

from toolweave._option_checks import (
    TEXT,
    OptionKind,
    check_kinds,
    instance_of,
    type_error,
)
from toolweave.config.validation import suggestion
from toolweave.errors import ConfigError
from toolweave.serve._auth.api_keys import ApiKey, ApiKeys, digest_of
from toolweave.serve._auth.claims import TokenProblem, plain_resource
from toolweave.serve._auth.documents import check_issuer_url
from toolweave.serve._auth.dpop import Dpop, ProofChecker
from toolweave.serve._auth.middleware import Authorization, KeptTokens, may_use
from toolweave.serve._auth.refusal import Challenges, IssuerUnavailable, TooManyTokens
from toolweave.serve._auth.resource_metadata import JsonDocument, metadata_path, metadata_url, resource_document
from toolweave.serve._auth.scopes import Access, ScopeRules
from toolweave.serve._http.asgi import App
from toolweave.serve.request import Identity, MayUse
from toolweave.state.startup import opened_when_reached
from toolweave.tools._scopes import scope_list

_log = logging.getLogger("toolweave.serve._auth")

_SCOPES = instance_of(Iterable, "a list of scopes")
_KINDS: Mapping[str, OptionKind] = {
    "required_scopes": _SCOPES,
    "scopes": instance_of(ScopeRules, "ScopeRules(...)").or_none,
    "resource": TEXT.or_none,
    "authorization_servers": instance_of(Iterable, "a list of URLs"),
    "scopes_supported": _SCOPES.or_none,
    "dpop": instance_of(Dpop, "Dpop(...)").or_none,
    "api_keys": instance_of((ApiKeys, Iterable), "a list of ApiKey(...)").or_none,
}


Verify: TypeAlias = Callable[[str], Identity | str | Awaitable[Identity | str | None] | None]
"""Returns the identity, or only the client id, of a token; None for an invalid token."""


class ProtectionOptions(TypedDict, total=False):
    """Options of every authorization.

    Attributes:
        required_scopes: The scopes that every token must have; 403 without.
        scopes: The scopes of single tools, resources and prompts, and the scopes that a scope includes.
        resource: The endpoint's own URL (`https://api.example/mcp`).
        authorization_servers: The issuers of its tokens. With both, clients discover where to sign in (RFC 9728).
        scopes_supported: The scopes that this metadata lists, `required_scopes` by default.
        dpop: The rules for proofs that a token is its sender's (RFC 9449).
        api_keys: API keys that are accepted beside the tokens.
    """

    required_scopes: Iterable[str]
    scopes: ScopeRules | None
    resource: str | None
    authorization_servers: Iterable[str]
    scopes_supported: Iterable[str] | None
    dpop: Dpop | None
    api_keys: ApiKeys | Iterable[ApiKey] | None


class IssuerOptions(ProtectionOptions, total=False):
    """Options of an authorization by tokens of issuers.

    Attributes:
        client_ids: The clients whose tokens are accepted if they have no `aud`, for issuers that write none (Amazon
            Cognito).
    """

    client_ids: Sequence[str]


@runtime_checkable
class JudgesAudience(Protocol):
    """A verifier that checks the audience of a token."""

    def also(self, audience: str) -> Verify:
        """Return a verifier that accepts tokens for one more audience."""
        ...


@runtime_checkable
class AsksIssuer(Protocol):
    """A verifier that asks the issuer about tokens."""

    async def judge(self, token: str, address: str) -> Identity:
        """Return the identity of a token that came from an address."""
        ...


def text_list(given: str | Iterable[str], name: str, *, empty: bool = False) -> tuple[str, ...]:
    """Return one text or several as a tuple, without repetitions.

    Raises:
        ConfigError: A member is not a text or is empty, or all are missing although one is needed.
    """
    listed: tuple[object, ...] = (given,)
    if not isinstance(given, str) and isinstance(given, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        listed = tuple(given)
    texts = [one for one in listed if isinstance(one, str) and one]
    is_missing = not listed and not empty
    if is_missing or len(texts) < len(listed):
        raise ConfigError(f"{name} is a text or a list of texts, none of them empty", field=name)
    return tuple(dict.fromkeys(texts))


class TokenAuth:
    """Authorizes requests whose token `verify` accepts.

    Args:
        verify: Called for each request. An exception means an invalid token, and is logged without its text.
        **options: See `ProtectionOptions`.

    Attributes:
        api_keys: The API keys that are accepted beside the tokens, or None.
        required_scopes: The scopes that every token must have.
        supported: The scopes that the metadata for clients lists.
        resource: The endpoint's own URL, or None.
        authorization_servers: The issuers of its tokens.
        access: The scopes of single tools, resources and prompts.
        proofs: Checks proofs that a token is its sender's (RFC 9449).
        challenges: The `WWW-Authenticate` headers of refusals.
        kept: The tokens that are stored for an exchange at servers behind a gateway.

    Raises:
        ConfigError: Only one of `resource` and `authorization_servers` is given, or something in them is wrong.
        TypeError: An option is unknown, and the error names the nearest one; or it has another type.
    """

    def __init__(self, verify: Verify, **options: Unpack[ProtectionOptions]) -> None:
        _check_names(type(self).__name__, options)
        check_kinds(options, _KINDS, owner=type(self).__name__)
        if not callable(verify):
            raise type_error(f"{type(self).__name__}.verify", verify, "a function of the token")
        self._use(verify)
        self.kept: KeptTokens = KeptTokens()
        keys = options.get("api_keys")
        if keys is None or isinstance(keys, ApiKeys):
            self.api_keys = keys
        else:
            self.api_keys = ApiKeys(keys)
        try:
            self.required_scopes: tuple[str, ...] = scope_list(options.get("required_scopes", ()))
            supported = options.get("scopes_supported")
            if supported is None:
                self.supported: tuple[str, ...] = self.required_scopes
            else:
                self.supported = scope_list(supported)
        except ValueError as exc:
            raise ConfigError(f"{type(self).__name__}: {exc}") from None
        self.resource = options.get("resource")
        self.authorization_servers: tuple[str, ...] = text_list(
            options.get("authorization_servers", ()), "authorization_servers", empty=True
        )
        self.access: Access = Access(options.get("scopes") or ScopeRules())
        self._dpop = options.get("dpop")
        if (self.resource is None) != (not self.authorization_servers):
            raise ConfigError("metadata for clients needs both resource and authorization_servers, or neither")
        if self.resource is not None:
            check_issuer_url(self.resource, "resource")
            self.resource = plain_resource(self.resource)
        self.proofs: ProofChecker = ProofChecker(self._dpop or Dpop())
        challenges = Challenges(scopes=self.required_scopes)
        if self.resource is not None:
            challenges = msgspec.structs.replace(challenges, metadata_url=metadata_url(self.resource))
        if self._dpop is not None:
            algorithms = tuple(self._dpop.algorithms)
            challenges = msgspec.structs.replace(
                challenges, dpop_algorithms=algorithms, dpop_required=self._dpop.required
            )
        self.challenges: Challenges = challenges

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.resource or ''}>"

    def offers_for(self, identity: Identity) -> MayUse:
        """Return whether an identity may use an offer, by the scopes of its token."""
        return partial(may_use, self.access, self.access.granted(identity.scopes))

    async def identify(self, token: str, address: str = "") -> Identity | None:
        """Return the identity of a token; None when it is invalid or has expired.

        Args:
            token: The token.
            address: The address of the sender, for the limits of questions to an issuer.

        Raises:
            IssuerUnavailable: The issuer has to be asked, and cannot be reached.
            TooManyTokens: The issuer would have to be asked, and refused too many tokens of this address.
        """
        # Keys first: they are looked up in memory, and must not be sent to an issuer as if they were tokens.
        if self.api_keys is not None:
            known = self.api_keys.find(token)
            if known is not None:
                return known
        try:
            found = await self._verified(token, address)
        except (IssuerUnavailable, TooManyTokens):
            raise
        except TokenProblem as exc:
            _log.info("a token was refused: %s", exc)
            return None
        except Exception as exc:  # boundary: a verifier's failure refuses the token, and its text may hold the token
            _log.error("verifying a token failed: %s", type(exc).__name__)
            return None
        if not found:
            _log.info("a token was refused: it is not known here")
            return None
        if isinstance(found, str):
            return Identity(client_id=found)
        if found.expires_at is not None and found.expires_at <= time.time():
            _log.info("a token was refused: it expired at %s, and it is %d now", found.expires_at, time.time())
            return None
        return found

    def _use(self, verify: Verify) -> None:
        """Verify tokens with this from now on."""
        self._verify = verify
        # found out once and not for each request: a check against a protocol compares all of its members
        self._judge = verify.judge if isinstance(verify, AsksIssuer) else None

    async def _verified(self, token: str, address: str) -> Identity | str | None:
        if self._judge is not None:
            return await self._judge(token, address)
        found = self._verify(token)
        if inspect.isawaitable(found):
            return await found
        return found

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Hold the resources of the authorization open while it is served."""
        async with opened_when_reached(self.proofs.store):
            yield

    def below(self, path: str) -> Self:
        """Return this authorization for another endpoint below its own, such as `/readers` of a gateway.

        The other endpoint is a resource by itself (RFC 9728): it has separate metadata, and accepts tokens for itself
        and tokens for the endpoint above. A token that is only for it is not valid anywhere else.
        """
        made = copy(self)
        if self.resource is None:
            return made
        made.resource = self.resource.rstrip("/") + path
        made.challenges = msgspec.structs.replace(self.challenges, metadata_url=metadata_url(made.resource))
        if isinstance(self._verify, JudgesAudience):
            made._use(self._verify.also(made.resource))  # noqa: SLF001  # a copy of itself
        return made

    def authorized(self, app: App) -> App:
        """Return the app wrapped in the authorization."""
        return Authorization(app, self)

    def documents(self) -> dict[str, App]:
        """Return the metadata of the endpoint by path (RFC 9728); empty without a `resource`."""
        if self.resource is None:
            return {}
        document = resource_document(
            self.resource,
            self.authorization_servers,
            scopes=self.supported,
            dpop_algorithms=self.challenges.dpop_algorithms,
            dpop_required=self.challenges.dpop_required,
        )
        return {metadata_path(self.resource): JsonDocument(document)}

    def public_paths(self) -> tuple[str, ...]:
        """Return the paths that clients look for at the root of the host."""
        return tuple(self.documents())

    def reachable_at_root(self) -> None:
        """Note that the root of the host leads to these paths, although the app is mounted below it."""

    def warn_if_unreachable(self, root_path: str) -> None:
        """Warn once if clients cannot reach its pages because the app is mounted at a path.

        The challenge names the metadata below the mount, so a client finds them there.
        """

    def protect(self, app: App) -> tuple[App, dict[str, App]]:
        """Return the app wrapped in the authorization, and the public documents by path."""
        return self.authorized(app), self.documents()


def _check_names(owner: str, options: Mapping[str, object]) -> None:
    """Refuse unknown options, which would leave open the access that they should restrict."""
    for name in options:
        if name not in ProtectionOptions.__annotations__:
            known = suggestion(name, ProtectionOptions.__annotations__)
            raise TypeError(f"{owner} has no option {name!r}; {known}")


class BearerAuth(TokenAuth):
    """Accepts listed tokens, or the tokens that your function accepts.

    Args:
        verify: `verify(token)` returns an `Identity`, a client id, or None; may be async.
        tokens: Instead of it, client ids by token, or only tokens if clients do not have to be distinguished.
        **options: See `ProtectionOptions`.

    Raises:
        ConfigError: Both or neither are given, or a token is shorter than 16 characters.
        TypeError: An option is unknown.
    """

    def __init__(
        self,
        verify: Verify | None = None,
        *,
        tokens: Mapping[str, str] | Sequence[str] | None = None,
        **options: Unpack[ProtectionOptions],
    ) -> None:
        if (verify is None) == (tokens is None):
            raise ConfigError("BearerAuth needs verify= or tokens=, one of them")
        super().__init__(verify or _ListedTokens(tokens or ()), **options)


class _ListedTokens:
    """Listed tokens, compared by their digests in constant time."""

    def __init__(self, tokens: Mapping[str, str] | Sequence[str]) -> None:
        if not isinstance(tokens, Mapping | Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]  # as above
            raise type_error("tokens", tokens, "a mapping or a list of tokens")
        if isinstance(tokens, Mapping):
            named = tokens
        else:
            named = {token: f"token-{n}" for n, token in enumerate(tokens, 1)}
        for token, name in named.items():
            if not isinstance(token, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # given in Python
                raise type_error("each of tokens", token, "a string")
            if not isinstance(name, str) or not name:  # pyright: ignore[reportUnnecessaryIsInstance]
                raise type_error("the client id of each token", name, "a string that is not empty")
        is_too_short = any(len(token) < 16 for token in named)
        if isinstance(tokens, str) or not named or is_too_short:
            raise ConfigError("tokens must be a list or a mapping of tokens that are 16 characters or longer")
        # By digest: the time of a look-up shows nothing of a token, as it would with the tokens as keys.
        self._known = {digest_of(token): name for token, name in named.items()}

    def __call__(self, token: str) -> str | None:
        return self._known.get(digest_of(token))


def own_metadata(audiences: Sequence[str], issuers: Sequence[str], options: ProtectionOptions) -> ProtectionOptions:
    """Return options that name the resource and its issuers, if an audience is a URL and they are not named."""
    for audience in audiences:
        try:
            check_issuer_url(audience, "resource")
        except ConfigError:
            # a name, such as `api://notes`
            continue
        named: ProtectionOptions = {"resource": audience, "authorization_servers": tuple(issuers)}
        return {**named, **options}
    return options


class ApiKeyAuth(TokenAuth):
    """Accepts API keys. Other authorizations accept them beside their own tokens, by the option `api_keys`.

    Args:
        keys: The keys.
        **options: See `ProtectionOptions`.

    Raises:
        ConfigError: `keys` is empty, two names have the same key, or an option is wrong.
        TypeError: An option is unknown.
    """

    def __init__(self, keys: ApiKeys | Iterable[ApiKey], **options: Unpack[ProtectionOptions]) -> None:
        if "api_keys" in options:
            raise TypeError("ApiKeyAuth has no option 'api_keys': its first argument has the keys")
        if not isinstance(keys, ApiKeys):
            keys = ApiKeys(keys)
        if not len(keys):
            raise ConfigError("ApiKeyAuth needs at least one key")
        named: ProtectionOptions = {**options, "api_keys": keys}
        super().__init__(_accepts_none, **named)


def _accepts_none(token: str) -> None:
    """Accept no token except the API keys."""
