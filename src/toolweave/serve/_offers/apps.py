"""Pages that show the results of tools (MCP Apps, SEP-1865): a `ui://` resource, and the `_meta` that names it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack

from toolweave.errors import ToolError
from toolweave.protocol.apps import (
    APP_SCHEME,
    APP_TYPE,
    AppCsp,
    AppPermission,
    AppVisibility,
    apps_capability,
    page_meta,
    tool_meta,
)
from toolweave.protocol.server_features import Resource, definition
from toolweave.protocol.uris import normal_uri
from toolweave.serve._offers.folder import in_thread
from toolweave.serve._offers.resources import Resources, ResourcesChanged
from toolweave.serve.request import Json, Method
from toolweave.tools import CallContext, Unsubscribe

_PERMISSIONS = frozenset(AppPermission.__args__)
_VISIBILITY = frozenset(AppVisibility.__args__)


class PageOptions(TypedDict, total=False):
    """The options of a page that its host shows or reads.

    Attributes:
        name: Its name for programs; the last part of its URI by default.
        title: Its human-readable name.
        description: Its description.
        csp: The origins that it may use; none by default.
        permissions: The abilities of the browser that it asks for; a host may refuse each.
        domain: The dedicated origin that it asks for, in the form that its host documents.
        prefers_border: Whether the host draws a border around it; by default the host decides.
    """

    name: str | None
    title: str | None
    description: str
    csp: AppCsp | None
    permissions: Sequence[AppPermission]
    domain: str | None
    prefers_border: bool | None


class AppPage:
    """A page for the results of tools, as made by `app`; a `ResourceSource` of one resource.

    Attributes:
        uri: Its URI.
    """

    def __init__(self, uri: str, html: str | Path, options: PageOptions) -> None:
        self.uri = uri
        self._html = html
        permissions = tuple(options.get("permissions", ()))
        self._meta = page_meta(options.get("csp"), permissions, options.get("domain"), options.get("prefers_border"))
        self._definition = definition(
            Resource(
                uri=uri,
                name=options.get("name") or uri.rstrip("/").rpartition("/")[2],
                title=options.get("title"),
                description=options.get("description", ""),
                mime_type=APP_TYPE,
                meta=self._meta,
            )
        )

    def tool_meta(self, *visibility: AppVisibility) -> Json:
        """Return the `_meta` of a tool whose results the page shows: `@tool(meta=page.tool_meta())`.

        Args:
            *visibility: `"model"`, `"app"`, or both, which is the default. A tool only for `"app"` is called by the
                page, and not listed for a model.

        Raises:
            ValueError: A value is neither.
        """
        _check(visibility, _VISIBILITY, "visibility")
        return tool_meta(self.uri, visibility)

    async def resources(self) -> Sequence[Json]:
        """Return its definition."""
        return [self._definition]

    async def templates(self) -> Sequence[Json]:
        """Return nothing."""
        return ()

    async def read(self, uri: str, ctx: CallContext) -> Json | None:
        """Return the page, if that is its URI."""
        if normal_uri(uri) != normal_uri(self.uri):
            return None
        if isinstance(self._html, str):
            text = self._html
        else:
            text = await in_thread(self._read)
        page: Json = {"uri": uri, "mimeType": APP_TYPE, "text": text}
        if self._meta:
            page["_meta"] = self._meta
        return {"contents": [page]}

    def subscribe(self, listener: Callable[[ResourcesChanged], None]) -> Unsubscribe:
        """Do nothing: the file is not watched."""
        return lambda: None

    def _read(self) -> str:
        try:
            return Path(self._html).read_text(encoding="utf-8")
        except OSError as exc:
            # without the path, which clients must not learn
            raise ToolError(f"the page cannot be read: {exc.strerror}") from None
        except UnicodeDecodeError:
            raise ToolError("the page cannot be read: it is not UTF-8") from None


def app(uri: str, html: str | os.PathLike[str], **options: Unpack[PageOptions]) -> AppPage:
    """Return a page that hosts show for the results of tools; pass it to `resources=`, its `tool_meta` to the tools.

    A host without MCP Apps shows the text of the tool's result, as for any other tool.

    Args:
        uri: The URI of the page, which begins with `ui://`.
        html: The document, or the path of its file, which is read each time.
        **options: `name`, `title`, `description`; `csp`, the origins that it may use; `permissions`, `domain` and
            `prefers_border`.

    Raises:
        FileNotFoundError: The file does not exist.
        ValueError: The URI has another scheme, or an option is unknown to hosts.
    """
    if not uri.startswith(APP_SCHEME) or len(uri) == len(APP_SCHEME):
        raise ValueError(f"the URI of a page begins with {APP_SCHEME!r}, such as 'ui://notes/board', not {uri!r}")
    _check(options.get("permissions", ()), _PERMISSIONS, "permissions")
    if not isinstance(html, str):
        html = Path(html)
        if not html.is_file():
            raise FileNotFoundError(f"the file {str(html)!r} of the page {uri!r} does not exist")
    return AppPage(uri, html, options)


class AppPages:
    """The feature: declares the extension once there is a page.

    Args:
        resources: The resources.
    """

    def __init__(self, resources: Resources) -> None:
        self._resources = resources

    def methods(self, *, modern: bool) -> Mapping[str, Method]:
        """Return nothing: pages are read as resources."""
        return {}

    def capabilities(self, *, modern: bool) -> Mapping[str, Any]:
        """Return the extension, once there is a page."""
        if any(isinstance(one, AppPage) for one in self._resources.sources):
            return apps_capability()
        return {}


def _check(given: Sequence[str], known: frozenset[str], what: str) -> None:
    for name in given:
        if name not in known:
            raise ValueError(f"{what}: {name!r} is not one of {', '.join(sorted(known))}")
