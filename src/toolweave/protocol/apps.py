"""MCP Apps (`io.modelcontextprotocol/ui`, SEP-1865): `_meta.ui` of tools and of the pages that show their results.

A tool names the page; the page names the origins that it may load from. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from toolweave._json_types import Json, JsonObject, as_array, as_object, as_text, text_or_empty
from toolweave._value import Value
from toolweave.protocol.meta import APPS_EXTENSION

__all__ = [
    "APP_SCHEME",
    "APP_TYPE",
    "AppCsp",
    "AppPermission",
    "AppVisibility",
    "apps_capability",
    "is_for_models",
    "is_for_pages",
    "is_origin",
    "page_meta",
    "page_uri",
    "tool_meta",
]


APP_SCHEME = "ui://"
"""The beginning of the URI of every page."""
APP_TYPE = "text/html;profile=mcp-app"
"""The media type of a page."""

AppVisibility: TypeAlias = Literal["model", "app"]
"""The callers of a tool that has a page: the model, the page."""
AppPermission: TypeAlias = Literal["camera", "microphone", "geolocation", "clipboardWrite"]
"""The abilities of the browser that a page may ask for."""

_UI = "ui"
_MODEL = "model"
_APP = "app"
_SOURCE = re.compile(r"[a-z][a-z0-9+.-]*://(\*\.)?[A-Za-z0-9.-]+(:([0-9]+|\*))?")


class AppCsp(Value, frozen=True, kw_only=True):
    """The origins that a page may use, each such as `https://api.example` or `https://*.example`; by default none.

    Attributes:
        connect_domains: Origins of requests (`fetch`, WebSockets).
        resource_domains: Origins of scripts, styles, images, fonts and media.
        frame_domains: Origins of frames inside the page.
        base_uri_domains: Origins that the document's base URI may have.
    """

    connect_domains: Sequence[str] = ()
    resource_domains: Sequence[str] = ()
    frame_domains: Sequence[str] = ()
    base_uri_domains: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            for origin in getattr(self, name):
                if not is_origin(origin):
                    # It becomes part of a policy.
                    raise ValueError(f"{name}: {origin!r} is not an origin such as 'https://api.example'")

    def json(self) -> Json:
        """Return the members that are given, as `_meta.ui.csp` has them."""
        members = {
            "connectDomains": self.connect_domains,
            "resourceDomains": self.resource_domains,
            "frameDomains": self.frame_domains,
            "baseUriDomains": self.base_uri_domains,
        }
        return {name: list(origins) for name, origins in members.items() if origins}


def is_origin(value: object) -> bool:
    """Whether a value is an origin as policies of content name them, such as `https://*.example`."""
    return _SOURCE.fullmatch(text_or_empty(value)) is not None


def page_meta(
    csp: AppCsp | None, permissions: Sequence[AppPermission], domain: str | None, prefers_border: bool | None
) -> Json:
    """Return the `_meta` of a page's resource; empty when it says nothing."""
    made: Json = {}
    if csp is not None and (origins := csp.json()):
        made["csp"] = origins
    if permissions:
        made["permissions"] = {name: {} for name in permissions}
    if domain is not None:
        made["domain"] = domain
    if prefers_border is not None:
        made["prefersBorder"] = prefers_border
    if made:
        return {_UI: made}
    return {}


def tool_meta(uri: str, visibility: Sequence[AppVisibility]) -> Json:
    """Return the `_meta` of a tool whose results the page at a URI shows; no `visibility` is both."""
    made: Json = {"resourceUri": uri}
    if visibility:
        made["visibility"] = list(visibility)
    return {_UI: made}


def page_uri(meta: JsonObject) -> str | None:
    """Return the URI of the page that shows the results of a tool with this `_meta`, or None."""
    ui = as_object(meta.get(_UI)) if _UI in meta else None
    if ui is None:
        return None
    return as_text(ui.get("resourceUri"))


def is_for_models(meta: JsonObject) -> bool:
    """Whether a model may see and call a tool with this `_meta`: no server says that only its page may."""
    visibility = _visibility(meta)
    return visibility is None or _MODEL in visibility


def is_for_pages(meta: JsonObject) -> bool:
    """Return whether a page of its server may call a tool with this `_meta`: by default it may."""
    visibility = _visibility(meta)
    return visibility is None or _APP in visibility


def _visibility(meta: JsonObject) -> list[Any] | None:
    ui = as_object(meta.get(_UI)) if _UI in meta else None
    if ui is None:
        return None
    return as_array(ui.get("visibility"))


def apps_capability() -> Json:
    """Return the members of `ServerCapabilities` of a server with pages."""
    return {"extensions": {APPS_EXTENSION: {"mimeTypes": [APP_TYPE]}}}
