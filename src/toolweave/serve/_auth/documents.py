"""JSON documents of an issuer that the operator named: its keys, its metadata, its answers about tokens.

One request, one deadline, no redirect, a bounded body. The addresses are the operator's own, so they are not judged;
documents that strangers name are fetched by `toolweave.oauth`, which judges them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import urlsplit

import anyio
import msgspec

from toolweave.config import is_loopback
from toolweave.errors import ConfigError
from toolweave.http import HttpClient, NoAnswer, http_proxy_for

__all__ = ["MAX_BYTES", "NoDocument", "ask_issuer", "check_issuer_url", "origin_of"]

MAX_BYTES = 256 * 1024
_SECONDS = 10.0
_HEADERS = {"accept": "application/json", "accept-encoding": "identity", "user-agent": "toolweave"}


class NoDocument(Exception):
    """A private signal: there is no usable answer; its text is safe to log."""


async def ask_issuer(
    url: str, *, form: bytes | None = None, headers: Mapping[str, str] | None = None
) -> tuple[int, dict[str, Any]]:
    """Return the status and the JSON object of a URL: by GET, or by POST of a form.

    The object is empty unless the status is 200.

    Raises:
        NoDocument: There is no answer within ten seconds, it is a redirect, longer than 256 KiB, or no JSON object.
    """
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    sent = {**_HEADERS, **(headers or {})}
    if form is not None:
        sent["content-type"] = "application/x-www-form-urlencoded"
    try:
        client = HttpClient(url, connect_seconds=_SECONDS, proxy=None if is_loopback(parts.hostname) else _proxy(url))
    except ValueError as exc:
        raise NoDocument(f"{parts.hostname} cannot be reached: {exc}") from None
    try:
        with anyio.fail_after(_SECONDS):
            with await client.send("GET" if form is None else "POST", target, sent, form or b"") as response:
                status, body = response.status, b""
                if status == 200:
                    body = await response.read(MAX_BYTES)
    except NoAnswer as exc:
        raise NoDocument(f"{parts.hostname} gave no usable answer: {exc}") from None
    except TimeoutError:
        raise NoDocument(f"{parts.hostname} gave no whole answer within {_SECONDS:g} s") from None
    finally:
        client.close()
    if 300 <= status < 400:
        raise NoDocument(f"{parts.hostname} answered with a redirect, which is not followed")
    return status, _object(body, parts.hostname) if status == 200 else {}


def _proxy(url: str) -> Any:
    return http_proxy_for(url)


def _object(body: bytes, host: str | None) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        raise NoDocument(f"{host} answered with what is no JSON") from None
    if not isinstance(value, dict):
        raise NoDocument(f"{host} answered with JSON that is no object")
    return cast("dict[str, Any]", value)


def check_issuer_url(url: str, name: str) -> None:
    """Refuse a URL of an issuer that is not protected by TLS, except on this machine.

    Raises:
        ConfigError: Naming the argument at fault.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ConfigError(f"{name} is not a URL: its host or port cannot be read") from None
    if parts.username is not None or parts.password is not None:
        raise ConfigError(f"{name} must not hold a user or password: its host is {host!r}")
    if not host or parts.fragment:
        raise ConfigError(f"{name} {url!r} must be a URL with a host and without a fragment")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(host)):
        raise ConfigError(f"{name} {url!r} must be https (http only for this machine)")


def origin_of(url: str) -> tuple[str, str, int | None]:
    """Return the scheme, host and port of a URL."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or {"http": 80, "https": 443}.get(parts.scheme)
