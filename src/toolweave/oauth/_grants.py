"""The grants without a browser: a code on another device, and the grants of machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import anyio

from toolweave._value import Value
from toolweave.config import OAuth
from toolweave.errors import ConfigError
from toolweave.oauth._discovery import AuthServerInfo
from toolweave.oauth._records import ClientRegistration
from toolweave.oauth._token_endpoint import TokenEndpoint, TokenRefused, TokenResponse, number_of, revealed
from toolweave.oauth._user_agent import DevicePrompt, UserAgent
from toolweave.oauth.fetch import FetchFailed, checked_url, quoted
from toolweave.oauth.metadata import AuthorizationServer

_URN = "urn:ietf:params:oauth"
_JWT_BEARER = f"{_URN}:grant-type:jwt-bearer"
_ID_JAG = f"{_URN}:token-type:id-jag"
_ACCESS_TOKEN = f"{_URN}:token-type:access_token"
_INTERVAL = 5.0
_SLOWER = 5.0
_MAX_PAUSE = 3600.0


class DeviceAnswer(Value, frozen=True):
    """The answer to a device authorization request (RFC 8628, 3.2).

    Attributes:
        verification_url: The name of `verification_uri` in the drafts of the RFC, which servers still use.
    """

    repr_exclude: ClassVar[frozenset[str]] = frozenset({"device_code"})

    device_code: str
    user_code: str
    verification_uri: str | None = None
    verification_url: str | None = None
    expires_in: float | str | None = None
    verification_uri_complete: str | None = None
    interval: float | str | None = None

    @property
    def oddities(self) -> list[str]:
        """The members that are missing or have another form than that of the standard, and their readings."""
        found: list[str] = []
        if self.verification_uri is None and self.verification_url is not None:
            found.append("'verification_url', read as 'verification_uri'")
        if number_of(self.expires_in) is None:
            found.append("no number as 'expires_in': the timeout of the sign-in counts")
        texts = [name for name in ("expires_in", "interval") if isinstance(getattr(self, name), str)]
        return [*found, *(f"{name!r} as a string, read as a number" for name in texts)]


async def device_tokens(
    endpoint: TokenEndpoint, found: AuthServerInfo, scopes: Sequence[str], *, user_agent: UserAgent, server: str
) -> TokenResponse:
    """Show a person a code for another device, and wait until it was typed there (RFC 8628).

    Raises:
        TokenRefused: The person or the server refused, or the code has expired.
        FetchFailed: The server has no such flow, or its answer is not accepted.
    """
    url = endpoint.server.device_authorization_endpoint
    if url is None:
        raise FetchFailed("its authorization server has no sign-in by device ('device_code')", final=True)
    form = _with_scopes({"resource": found.resource}, scopes)
    answer = (await endpoint.post(url, "the device authorization endpoint", form)).decoded(DeviceAnswer)
    for oddity in answer.oddities:
        endpoint.odd.note(f"the device authorization endpoint gives {oddity}")
    prompt = DevicePrompt(
        user_code=quoted(answer.user_code),
        verification_uri=_page(answer),
        verification_uri_complete=_complete(answer),
        expires_in=_lifetime(answer, endpoint.settings.timeout),
    )
    await user_agent.show_device_code(prompt, server=server)
    with anyio.move_on_after(prompt.expires_in):
        return await _polled(endpoint, found, answer)
    raise TokenRefused("expired_token", f"the code was not typed within {prompt.expires_in:g} s")


def _page(answer: DeviceAnswer) -> str:
    url = answer.verification_uri or answer.verification_url
    if url is None:
        raise FetchFailed("its device authorization endpoint names no page to type the code in", final=True)
    return checked_url(url, "the page of the sign-in by device")


def _lifetime(answer: DeviceAnswer, timeout: float) -> float:
    """Return the seconds to wait for the person: the lifetime of the code, at most the timeout of the sign-in."""
    seconds = number_of(answer.expires_in)
    if seconds is None:
        return timeout
    return max(0.0, min(seconds, timeout))


def _complete(answer: DeviceAnswer) -> str | None:
    url = answer.verification_uri_complete
    if url is None:
        return None
    return checked_url(url, "the page of the sign-in by device")


async def _polled(endpoint: TokenEndpoint, found: AuthServerInfo, answer: DeviceAnswer) -> TokenResponse:
    """Ask until the person has answered, with the pauses that the server requires.

    The caller bounds the whole: the code expires.
    """
    # A server that names 0 would otherwise be asked without a pause.
    interval = number_of(answer.interval)
    if interval is None:
        interval = _INTERVAL
    pause = min(max(interval, 1.0), _MAX_PAUSE)
    form = {
        "grant_type": f"{_URN}:grant-type:device_code",
        "device_code": answer.device_code,
        "resource": found.resource,
    }
    while True:
        await anyio.sleep(pause)
        try:
            return await endpoint.request(form)
        except TokenRefused as exc:
            if exc.code not in ("authorization_pending", "slow_down"):
                raise
            if exc.code == "slow_down":
                # For this and all later requests (RFC 8628, 3.5).
                pause += _SLOWER
        except FetchFailed as exc:
            if exc.final:
                raise
            # longer after a timeout (RFC 8628, 3.5)
            pause = min(2 * pause + 1.0, _MAX_PAUSE)


async def machine_tokens(endpoint: TokenEndpoint, found: AuthServerInfo, scopes: Sequence[str]) -> TokenResponse:
    """Ask for a token without a person, by the grant of the settings.

    Raises:
        TokenRefused: It is refused, which is final.
        FetchFailed: No answer arrived, or it is not accepted.
    """
    settings = endpoint.settings
    match settings.grant:
        case "client_credentials":
            form = {"grant_type": "client_credentials", "resource": found.resource}
        case "token_exchange":
            form = await _exchange(settings, found)
        case "jwt_bearer":
            assertion = await revealed(settings.assertion) or ""
            form = {"grant_type": _JWT_BEARER, "assertion": assertion, "resource": found.resource}
        case "enterprise":
            assertion = await _id_jag(endpoint, found, scopes)
            form = {"grant_type": _JWT_BEARER, "assertion": assertion}
        case _:
            raise ConfigError(f"the grant {settings.grant!r} needs a person", field="oauth.grant")
    return await endpoint.request(_with_scopes(form, scopes))


async def _exchange(settings: OAuth, found: AuthServerInfo) -> dict[str, str]:
    """Return the form that exchanges the token of a caller for a token for the server (RFC 8693, 2.1)."""
    token = await revealed(settings.subject_token) or ""
    if not token:
        raise FetchFailed("the caller has no token that could be exchanged", final=True)
    form = {
        "grant_type": f"{_URN}:grant-type:token-exchange",
        "subject_token": token,
        "subject_token_type": _ACCESS_TOKEN,
        "requested_token_type": _ACCESS_TOKEN,
        "resource": found.resource,
    }
    if settings.audience:
        return {**form, "audience": settings.audience}
    return form


async def _id_jag(endpoint: TokenEndpoint, found: AuthServerInfo, scopes: Sequence[str]) -> str:
    """Exchange the user's ID token at the enterprise's provider for a grant at the server's (RFC 8693, ID-JAG)."""
    settings = endpoint.settings
    secret = await revealed(settings.idp_client_secret)
    method = "none"
    other_method = None
    if secret is not None:
        method = "client_secret_basic"
        other_method = "client_secret_post"
    provider = TokenEndpoint(
        fetch=endpoint.fetch,
        server=AuthorizationServer(issuer=settings.idp_issuer, token_endpoint=settings.idp_token_endpoint),
        registration=ClientRegistration(client_id=settings.idp_client_id, client_secret=secret, method=method),
        settings=settings,
        other_method=other_method,
        odd=endpoint.odd,
    )
    form = {
        "grant_type": f"{_URN}:grant-type:token-exchange",
        "requested_token_type": _ID_JAG,
        "audience": found.server.issuer,
        "resource": found.resource,
        "subject_token": await revealed(settings.idp_id_token) or "",
        "subject_token_type": f"{_URN}:token-type:id_token",
    }
    answer = await provider.request(_with_scopes(form, scopes))
    # Any other token, such as one for the provider itself, must not be sent to the server.
    if answer.issued_token_type != _ID_JAG:
        raise FetchFailed("the identity provider gives another token than the ID-JAG that was asked for", final=True)
    return answer.access_token


def _with_scopes(form: dict[str, str], scopes: Sequence[str]) -> dict[str, str]:
    if scopes:
        return {**form, "scope": " ".join(scopes)}
    return form
