"""Pages of MCP Apps as a host shows them (SEP-1865): the content of a page, and its policy. Pure.

All of it is the word of a server. An origin that cannot be one is left out and named, so that nothing else becomes part
of a policy.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence

from toolweave._json_types import (
    Json,
    JsonObject,
    array_or_empty,
    as_object,
    as_text,
    object_entries,
    object_or_empty,
    without_members,
)
from toolweave._value import Value
from toolweave.protocol.apps import APP_TYPE, AppCsp, is_origin

__all__ = ["AppDocument", "page_policy", "read_document", "without_result_type"]


_SCHEMES = ("https://", "http://", "wss://", "ws://")
_MAX_SOURCES = 100
_MEMBERS: Mapping[str, str] = {
    "connect_domains": "connectDomains",
    "resource_domains": "resourceDomains",
    "frame_domains": "frameDomains",
    "base_uri_domains": "baseUriDomains",
}


class AppDocument(Value, frozen=True, kw_only=True):
    """A page that was read.

    Attributes:
        html: The document.
        csp: The origins that it may use.
        refused: The values that it names in place of origins and that are not origins, as texts.
        permissions: The abilities of the browser that it asks for.
        prefers_border: Whether it wants a border; None leaves that to the host.
    """

    html: str
    csp: AppCsp = AppCsp()
    refused: Sequence[str] = ()
    permissions: Sequence[str] = ()
    prefers_border: bool | None = None


def read_document(uri: str, result: JsonObject, listed: JsonObject | None = None) -> AppDocument:
    """Return the page in the result of reading its resource.

    Args:
        uri: The URI that was read.
        result: The result of `resources/read`.
        listed: The `_meta` of the resource in its list, which counts if the content has none for pages.

    Raises:
        ValueError: The result does not hold such a page; the message names its content.
    """
    content = _content_of(uri, object_entries(result.get("contents")))
    kind = as_text(content.get("mimeType")) or "none"
    if kind.replace(" ", "").lower() != APP_TYPE:
        raise ValueError(f"{uri!r} is of the type {kind!r}; a page is {APP_TYPE!r}")
    ui = as_object(object_or_empty(content.get("_meta")).get("ui"))
    if ui is None:
        ui = object_or_empty((listed or {}).get("ui"))
    csp, refused = _csp(object_or_empty(ui.get("csp")))
    border = ui.get("prefersBorder")
    return AppDocument(
        html=_html(uri, content),
        csp=csp,
        refused=refused,
        permissions=tuple(map(str, object_or_empty(ui.get("permissions")))),
        prefers_border=border if isinstance(border, bool) else None,
    )


def _content_of(uri: str, contents: Sequence[JsonObject]) -> JsonObject:
    """Return the content of a URI; the first one if none has it, since servers may normalize a URI."""
    for content in contents:
        if content.get("uri") == uri:
            return content
    if not contents:
        raise ValueError(f"{uri!r} has no content")
    return contents[0]


def page_policy(csp: AppCsp, *, host: str) -> str:
    """Return the Content-Security-Policy of a page: the default of the extension, with the origins that it names.

    Scripts and styles of the document itself run; everything else is loaded from the named origins only. `'self'`,
    which the extension allows as well, is left out: the origin of a sandbox has nothing to load.

    Args:
        csp: The origins.
        host: The origin of the page that may frame it.
    """
    resources = tuple(csp.resource_domains)
    directives: Mapping[str, Sequence[str]] = {
        "default-src": (),
        "script-src": ("'unsafe-inline'", *resources),
        "style-src": ("'unsafe-inline'", *resources),
        "img-src": ("data:", *resources),
        "media-src": ("data:", *resources),
        "font-src": resources,
        "connect-src": tuple(csp.connect_domains),
        "frame-src": tuple(csp.frame_domains),
        "object-src": (),
        "base-uri": tuple(csp.base_uri_domains) or ("'self'",),
        "form-action": (),
        "frame-ancestors": (host,),
    }
    return "; ".join(f"{name} {' '.join(sources or (_NONE,))}" for name, sources in directives.items())


_NONE = "'none'"


def without_result_type(result: JsonObject) -> Json:
    """Return a complete result in the revisions that pages speak: without its `resultType`.

    Raises:
        ValueError: It is not complete, such as one that asks for input.
    """
    if result.get("resultType", "complete") != "complete":
        raise ValueError("the response is not a complete result")
    return without_members(result, "resultType")


def _html(uri: str, content: JsonObject) -> str:
    text = as_text(content.get("text"))
    blob = as_text(content.get("blob"))
    if text is not None:
        return text
    if blob is None:
        raise ValueError(f"{uri!r} has neither a text nor a blob")
    try:
        return base64.b64decode(blob, validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{uri!r} has a blob that is not UTF-8 in base64: {error}") from None


def _csp(given: JsonObject) -> tuple[AppCsp, tuple[str, ...]]:
    """Return the origins that a page names, and the names that are not origins."""
    found: dict[str, Sequence[str]] = {}
    refused: list[str] = []
    for member, name in _MEMBERS.items():
        named = array_or_empty(given.get(name))
        good = [one for one in named[:_MAX_SOURCES] if _is_loadable(one)]
        refused += [f"{name}: {one!r}" for one in named if one not in good]
        found[member] = tuple(good)
    return AppCsp(**found), tuple(refused[:_MAX_SOURCES])


def _is_loadable(origin: object) -> bool:
    return isinstance(origin, str) and is_origin(origin) and origin.startswith(_SCHEMES)
