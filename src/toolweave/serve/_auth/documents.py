"""JSON documents of an issuer that the operator named: its keys, its metadata, its answers about tokens.

The addresses are the operator's own, so those of a private network are accepted where the named URL is in one; the URLs
an issuer's documents name in turn is judged by that. No redirect is followed, though `toolweave.oauth` follows some.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolweave.errors import ConfigError
from toolweave.oauth._fetch import FetchFailed, GuardedFetch, checked_url

_SECONDS = 10.0


class NoDocument(Exception):
    """A private signal: there is no usable answer; its text is safe to log."""


async def ask_issuer(
    url: str, *, form: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None, named: str = ""
) -> tuple[int, dict[str, Any]]:
    """Return the status and the JSON object of a URL: by GET, or by POST of a form.

    The object is empty unless the status is 200. `named` is the operator's own URL, where it is another one.

    Raises:
        NoDocument: There is no answer within ten seconds, it is a redirect, longer than 256 KiB, or no JSON object.
    """
    fetch = GuardedFetch([named or url], seconds=_SECONDS)
    try:
        if form is None:
            answer = await fetch.get(url, "its document", headers=headers)
        else:
            answer = await fetch.post(url, "its endpoint", form, headers=headers)
        if answer.url != url or 300 <= answer.status < 400:
            raise NoDocument("it answered with a redirect, which is not followed")
        return answer.status, answer.decoded(dict[str, Any]) if answer.status == 200 else {}
    except FetchFailed as exc:
        raise NoDocument(str(exc)) from None


def check_issuer_url(url: str, name: str) -> None:
    """Refuse a URL of an issuer that is not protected by TLS, except on this machine.

    Raises:
        ConfigError: Naming the argument at fault.
    """
    try:
        checked_url(url, name)
    except FetchFailed as exc:
        raise ConfigError(str(exc)) from None


def url_in(document: Mapping[str, Any], member: str, whose: str = "it") -> str:
    """Return a URL that a document of an issuer names.

    Raises:
        NoDocument: It names none that may be used; `whose` begins the text.
    """
    url = document.get(member)
    if not isinstance(url, str):
        raise NoDocument(f"{whose} has no {member!r}")
    try:
        check_issuer_url(url, member)
    except ConfigError as exc:
        raise NoDocument(str(exc)) from None
    return url
