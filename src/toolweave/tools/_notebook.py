"""Tools and results as HTML for notebooks. All text of a server is escaped; nothing of it is executed or fetched."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, cast

from toolweave._json_types import JsonObject
from toolweave._text import shortened, visible
from toolweave.errors import ToolError
from toolweave.protocol.content import ContentBlock, ImageContent
from toolweave.tools.spec import ToolSpec

_MAX_TEXT = 20_000
_MAX_IMAGE = 5_000_000
"""Maximum characters of base64 that are shown as a picture."""
_PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


def tools_html(specs: Iterable[ToolSpec]) -> str:
    """Return a table of tools: names, servers, parameters, descriptions."""
    rows = [(spec.name, spec.server or "", ", ".join(_parameters(spec)), spec.description) for spec in specs]
    return _table(("tool", "server", "parameters", "description"), rows)


def tool_html(spec: ToolSpec) -> str:
    """Return one tool with a table of its parameters."""
    required = spec.input_schema.get("required")
    if isinstance(required, (list, tuple)):
        wanted = cast("Sequence[Any]", required)
    else:
        wanted = ()
    rows = [
        (name, _type(schema), "yes" if name in wanted else "", _member(schema, "description"))
        for name, schema in _parameters(spec).items()
    ]
    if spec.server is not None:
        origin = f" from server <b>{_text(spec.server)}</b>"
    else:
        origin = ""
    return (
        f"<div><b>{_text(spec.name)}</b>{origin}<p>{_text(spec.description)}</p>"
        f"{_table(('parameter', 'type', 'required', 'description'), rows) if rows else ''}</div>"
    )


def result_html(content: Sequence[ContentBlock], structured_content: Any, error: ToolError | None) -> str:
    """Return a result: text as it is, pictures as pictures, structured content of a result without blocks."""
    style = "" if error is None else ' style="color: #b00020"'
    if error is None:
        head = ""
    else:
        head = f"<b>{_text(error.kind.value)}</b>"
    if content:
        shown = "".join(_picture(block) or _pre(block.render()) for block in content)
    elif structured_content is not None:
        shown = _pre(json.dumps(structured_content, ensure_ascii=False, indent=2))
    else:
        shown = _pre("" if error is None else error.message)
    return f"<div{style}>{head}{shown}</div>"


def server_html(name: str, facts: Sequence[str], specs: Iterable[ToolSpec]) -> str:
    """Return a connection: its name, facts such as its state, and its tools."""
    return f"<div><b>{_text(name)}</b> {_text(', '.join(facts))}{tools_html(specs)}</div>"


def run_html(text: str, facts: Sequence[str], error: Exception | None) -> str:
    """Return the result of a run: its text, and facts such as its status."""
    style = "" if error is None else ' style="color: #b00020"'
    failed = "" if error is None else _pre(str(error))
    return f"<div{style}>{_pre(text) if text else ''}{failed}<small>{_text(', '.join(facts))}</small></div>"


def _picture(block: ContentBlock) -> str | None:
    """Return a block as a picture, if it is of a raster format; else None."""
    if not isinstance(block, ImageContent) or block.mime_type not in _PICTURES or len(block.data) > _MAX_IMAGE:
        return None
    try:
        # Re-encoded, so that it is base64 and nothing else.
        data = base64.b64encode(block.decode()).decode()
    except ValueError:
        return None
    return f'<img alt="" src="data:{block.mime_type};base64,{data}">'


def _parameters(spec: ToolSpec) -> JsonObject:
    found = spec.input_schema.get("properties")
    if isinstance(found, Mapping):
        return cast("Mapping[str, Any]", found)
    return {}


def _type(schema: Any) -> str:
    if isinstance(schema, Mapping):
        kind = cast("Mapping[str, Any]", schema).get("type")
    else:
        kind = None
    if isinstance(kind, list):
        return " | ".join(map(str, cast("list[Any]", kind)))
    return str(kind or "any")


def _member(schema: Any, key: str) -> str:
    if isinstance(schema, Mapping):
        return str(cast("Mapping[str, Any]", schema).get(key, ""))
    return ""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = "".join(f"<th>{_text(name)}</th>" for name in head)
    body = ""
    for row in rows:
        columns = "".join(f"<td>{_text(cell)}</td>" for cell in row)
        body += f"<tr>{columns}</tr>"
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"


def _pre(text: str) -> str:
    return f"<pre>{_text(text)}</pre>"


def _text(text: str) -> str:
    return escape(visible(shortened(text, _MAX_TEXT)))
