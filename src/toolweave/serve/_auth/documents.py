"""JSON documents of an issuer that the operator named: its keys, its metadata, its answers about tokens."""

# The operator named the issuer, so it may be in a private network, and the URLs in its documents may have addresses of
# the same kind. No redirect is followed: keys of another place would verify the tokens of this issuer.

from __future__ import annotations

from collections.abc import Mapping

from toolweave._json_types import Json, JsonObject
from toolweave.errors import ConfigError
from toolweave.oauth.fetch import FetchFailed, GuardedFetch, checked_url

_SECONDS = 10.0


class NoDocument(Exception):
    """A private signal: the issuer returned no usable document. The text is safe to log."""


async def ask_issuer(
    url: str, *, form: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None, named: str = ""
) -> tuple[int, Json]:
    """Return the status and the JSON object of a URL: by GET, or by POST of a form.

    The object is empty unless the status is 200. `named` is the URL in the config, if it is another one.

    Raises:
        NoDocument: The answer takes more than ten seconds, is a redirect, longer than 256 KiB, or not a JSON object.
    """
    fetch = GuardedFetch([named or url], seconds=_SECONDS)
    try:
        if form is None:
            answer = await fetch.get(url, "its document", headers=headers)
        else:
            answer = await fetch.post(url, "its endpoint", form, headers=headers)
        if answer.url != url or 300 <= answer.status < 400:
            raise NoDocument("it answered with a redirect, which is not followed")
        if answer.status != 200:
            return answer.status, {}
        return answer.status, answer.decoded(Json)
    except FetchFailed as exc:
        raise NoDocument(str(exc)) from None


def check_issuer_url(url: str, name: str) -> None:
    """Refuse a URL of an issuer that is not protected by TLS, except on this machine.

    Raises:
        ConfigError: The URL is not protected; the error names the argument.
    """
    try:
        checked_url(url, name)
    except FetchFailed as exc:
        raise ConfigError(str(exc)) from None


def url_in(document: JsonObject, member: str, whose: str = "it") -> str:
    """Return a URL in a document of an issuer.

    Raises:
        NoDocument: The URL is missing or not allowed; `whose` begins the text.
    """
    url = document.get(member)
    if not isinstance(url, str):
        raise NoDocument(f"{whose} has no {member!r}")
    try:
        check_issuer_url(url, member)
    except ConfigError as exc:
        raise NoDocument(str(exc)) from None
    return url
