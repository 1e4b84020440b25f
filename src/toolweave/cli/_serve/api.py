"""An API as a server: the toolset for `--openapi` of `toolweave serve`. Serves nothing itself."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from toolweave._json_types import Json, JsonObject, object_or_empty
from toolweave.cli._exit_codes import CommandError
from toolweave.cli._screen import note
from toolweave.cli._serve.listen import secret_in
from toolweave.errors import ToolweaveError
from toolweave.protocol import methods
from toolweave.protocol.skipped_parts import SkippedPart, skipped_parts_meta

if TYPE_CHECKING:
    from toolweave.openapi import OpenApiToolset
    from toolweave.serve import CallNext, McpServer, Request
    from toolweave.serve.request import Json


_DOCUMENT_SUFFIXES = (".json", ".yaml", ".yml")
_VERSION = re.compile(rb"""(?:^|[{,])\s*["']?(?:openapi|swagger)["']?\s*:\s*["']?[0-9]""", re.MULTILINE)
_LOOKED_AT = 1_000_000
"""Bytes of a file in which its version is looked for; generators that sort members write it after `components`."""


def is_document(target: str) -> bool:
    """Return whether a target of `toolweave serve` is an OpenAPI document: a URL, or a file that has its version."""
    if target.startswith(("http://", "https://")):
        return True
    path = Path(target).expanduser()
    if path.suffix.lower() not in _DOCUMENT_SUFFIXES:
        return False
    try:
        with path.open("rb") as file:
            return _VERSION.search(file.read(_LOOKED_AT)) is not None
    except OSError:
        return False


def api_server(
    source: str,
    *,
    base_url: str | None,
    auth_env: str | None,
    headers_env: str | None,
    repair: bool,
    name: str | None,
    state_keys: Sequence[str] | None = None,
) -> McpServer:
    """Return a server whose tools are the operations of an API.

    Args:
        source: The URL or path of its OpenAPI document.
        base_url: Where it is, if not where the document says.
        auth_env: The variable that holds a token, or a JSON object as `auth` of `openapi_tools` takes.
        headers_env: The variable that holds the headers of every request, as a JSON object.
        repair: Whether arguments that nearly fit are made to fit.
        name: The server's name.
        state_keys: As for `create_mcp_server`.

    Raises:
        CommandError: The document cannot be had, or a variable is not set or holds something else.
    """
    from toolweave.openapi import OpenApiOptions, openapi_tools  # --help imports this module

    headers: JsonObject = {} if headers_env is None else _object(secret_in(headers_env, "--headers-env"), headers_env)
    try:
        toolset = openapi_tools(
            source,
            base_url=base_url,
            auth=None if auth_env is None else _credentials(secret_in(auth_env, "--auth-env"), auth_env),
            headers=headers,
            options=OpenApiOptions(repair_arguments=repair),
        )
    except ToolweaveError as error:
        raise CommandError(str(error)) from None
    for one in toolset.problems:
        note(f"{one.operation}: left out is the {one.skipped}: {one.reason} (at {one.pointer})")
    return server_of_api(toolset, name=name or "api", repair=repair, state_keys=state_keys)


def server_of_api(
    toolset: OpenApiToolset, *, name: str, repair: bool = True, state_keys: Sequence[str] | None = None
) -> McpServer:
    """Return a server with the operations of an API as tools, and its GET operations also as resources.

    Its list of tools names the operations that are left out, and why.
    """
    from toolweave.serve import create_mcp_server  # late, as below

    return create_mcp_server(
        name,
        tools=toolset,
        resources=[toolset.resources()],
        request_state_keys=state_keys,
        repair_arguments=repair,
        middleware=[SkippedOperations(toolset)],
    )


class SkippedOperations:
    """Middleware that names in every list of tools the operations of an API that are left out, and why."""

    def __init__(self, toolset: OpenApiToolset) -> None:
        self._toolset = toolset

    async def __call__(self, request: Request, call_next: CallNext) -> Json:
        """Add to the `_meta` of a list of tools."""
        result = await call_next(request)
        if request.method != methods.TOOLS_LIST or not self._toolset.problems:
            return result
        parts = (
            SkippedPart(
                name=one.tool,
                part="tool" if one.skipped == "operation" else one.skipped,
                reason=f"{one.operation}: {one.reason} (at {one.pointer})",
            )
            for one in self._toolset.problems
        )
        meta = object_or_empty(result.get("_meta"))
        return {**result, "_meta": {**meta, **skipped_parts_meta(parts)}}


def _credentials(text: str, variable: str) -> Any:  # what `openapi_tools` takes
    if not text.startswith("{"):
        return text
    given = _object(text, variable)
    return {name: tuple(cast("list[Any]", one)) if isinstance(one, list) else one for name, one in given.items()}


def _object(text: str, variable: str) -> JsonObject:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise CommandError(f"environment variable {variable!r} must hold a JSON object")
    return cast("Json", value)
