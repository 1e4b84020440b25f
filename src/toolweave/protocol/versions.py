"""Protocol revisions of two eras: legacy (a handshake, `initialize`) and modern (stateless, with an envelope)."""

from __future__ import annotations

__all__ = [
    "BATCHING_VERSION",
    "FIRST_AUTHORIZATION_VERSION",
    "FORMS_VERSION",
    "HANDSHAKE_VERSIONS",
    "LATEST_HANDSHAKE_VERSION",
    "MODERN_VERSION",
    "MODERN_VERSIONS",
    "PAGES_VERSION",
    "POLLING_VERSION",
    "TASKS_VERSION",
    "versions_of",
]

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Legacy revisions, which begin with `initialize`, oldest first."""
LATEST_HANDSHAKE_VERSION = HANDSHAKE_VERSIONS[-1]
MODERN_VERSIONS = ("2026-07-28",)
"""Modern revisions, oldest first: every request carries its own envelope in `_meta`."""
MODERN_VERSION = MODERN_VERSIONS[-1]
BATCHING_VERSION = "2025-03-26"
"""The one revision with JSON-RPC batches."""
POLLING_VERSION = "2025-11-25"
"""The first revision whose clients come back for a stream that the server has closed (SEP-1699)."""
FIRST_AUTHORIZATION_VERSION = "2025-03-26"
"""The revision that brought authorization: its servers need publish no metadata, and are their own issuers."""
FORMS_VERSION = "2025-06-18"
"""The first revision in which a server may ask the user by a form."""
PAGES_VERSION = "2025-11-25"
"""The first revision in which a server may ask the user to visit a page."""
TASKS_VERSION = "2025-11-25"
"""The one revision whose core has tasks; later ones have them as an extension."""


def versions_of(protocol: str) -> tuple[str, ...]:
    """Return the revisions that a setting means, oldest first.

    Args:
        protocol: `"auto"` for all of them, `"legacy"` for those with a handshake, else the name of one.

    Raises:
        ValueError: The revision does not exist; the message names those that do.
    """
    known = HANDSHAKE_VERSIONS + MODERN_VERSIONS
    if protocol in known:
        return (protocol,)
    if protocol not in ("auto", "legacy"):
        raise ValueError(f"protocol {protocol!r} is unknown; there are auto, legacy, {', '.join(known)}")
    if protocol == "auto":
        return known
    return HANDSHAKE_VERSIONS
