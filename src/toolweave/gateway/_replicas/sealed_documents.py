"""Documents of the store that replicas share, which one of them sealed and another reads."""

from __future__ import annotations

import logging

from toolweave._json_types import JsonObject, as_object
from toolweave.gateway._replicas.replicas import Replicas
from toolweave.state import Document

_log = logging.getLogger("toolweave.gateway")


def sealed_object(replicas: Replicas, found: Document, kind: str, shown: str) -> JsonObject | None:
    """Return the object in a sealed document; None, with a warning, if no replica with these keys wrote it.

    Args:
        replicas: The replicas.
        found: The document, sealed for its kind and its key.
        kind: The kind of document.
        shown: The document in words, for the warning.
    """
    opened = as_object(replicas.opened(found.value, f"{kind} {found.key}"))
    if opened is None:
        _log.warning("%s in the shared store was ignored: no replica with these keys wrote it", shown)
    return opened
