"""URIs of resources inside results, for a gateway that offers resources under other URIs than their servers. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolweave._json_types import Json, JsonObject, as_array, as_object, object_or_empty

__all__ = ["with_uris"]


def with_uris(result: JsonObject, uris: Mapping[str, str]) -> Json:
    """Return a result of a tool, a prompt or a reading whose resources have other URIs.

    Links and embedded resources in content, the contents of resources, and the page of an app (`_meta.ui.resourceUri`)
    are looked at, nothing else.

    Args:
        result: The result.
        uris: The new URIs, by those of the server.
    """
    made = dict(result)
    for member in ("content", "contents", "messages"):
        entries = as_array(made.get(member))
        if entries is not None:
            made[member] = [_entry(entry, uris) for entry in entries]
    return _with_page(made, uris)


def _with_page(made: Json, uris: Mapping[str, str]) -> Json:
    meta = object_or_empty(made.get("_meta"))
    page = object_or_empty(meta.get("ui"))
    if page.get("resourceUri") not in uris:
        return made
    # Copies, level by level: the result of the upstream may be kept elsewhere, under its own URIs.
    return {**made, "_meta": {**meta, "ui": {**page, "resourceUri": uris[page["resourceUri"]]}}}


def _entry(entry: Any, uris: Mapping[str, str]) -> Any:
    """Return a block, the contents of a resource, or a message, with its nested blocks."""
    members = as_object(entry)
    if members is None:
        return entry
    made = dict(members)
    uri = made.get("uri")
    if isinstance(uri, str):
        made["uri"] = uris.get(uri, uri)
    for inner in ("resource", "content"):
        if as_object(made.get(inner)) is not None:
            made[inner] = _entry(made[inner], uris)
    return made
