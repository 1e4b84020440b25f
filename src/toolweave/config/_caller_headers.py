"""The headers that a gateway sends to a server for each caller: `forward_headers` and `claim_headers` of an entry.

Credentials of the gateway's own callers, headers of a single hop and headers that the protocol sets are refused by
name. A list that is checked when it is read cannot forward a token by a slip.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from toolweave._json_types import JsonObject
from toolweave.config.validation import HEADER_NAME, check_text, is_name, shown_name
from toolweave.errors import ConfigError

_CREDENTIALS = frozenset(
    {"authorization", "proxy-authorization", "proxy-authenticate", "cookie", "set-cookie", "dpop", "www-authenticate"}
)
_OF_ONE_HOP = frozenset(
    {
        *("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "host"),
        *("content-length", "content-type", "content-encoding", "accept", "accept-encoding", "accept-charset"),
        *("expect", "origin", "referer", "range", "date", "http2-settings"),
    }
)
_OF_THE_PROTOCOL = frozenset({"last-event-id", "traceparent", "tracestate", "baggage"})


def check_caller_headers(fixed: Iterable[str], forwarded: Sequence[str], claimed: JsonObject) -> None:
    """Check the names of the headers that a server gets for each caller, and that each has one source.

    Args:
        fixed: The headers that are the same for all callers.
        forwarded: The field `forward_headers`.
        claimed: The field `claim_headers`.

    Raises:
        ConfigError: A name is not allowed, is there twice or has two sources, or a claim is not a name.
    """
    _check_names(forwarded, "forward_headers")
    _check_names(claimed, "claim_headers")
    for name, claim in claimed.items():
        if not check_text(claim, f"claim_headers.{name}", controls=False):
            raise ConfigError(f"'claim_headers.{name}' must name a claim, such as 'sub'", field="claim_headers")
    first: dict[str, str] = {}
    # Which source of a header is used must not depend on an order.
    for field, names in {"headers": fixed, "forward_headers": forwarded, "claim_headers": claimed}.items():
        for name in names:
            before = first.setdefault(name.lower(), field)
            if before != field:
                raise ConfigError(f"{name!r} is in both {before!r} and {field!r}; leave it in one of them", field=field)


def _check_names(names: Iterable[str], field: str) -> None:
    seen: set[str] = set()
    for name in names:
        if not is_name(name, HEADER_NAME):
            raise ConfigError(f"{field!r} has a name that no HTTP header can have: {shown_name(name)}", field=field)
        reason = _refused(name.lower())
        if reason:
            raise ConfigError(f"{field!r} has {name!r}, which {reason}", field=field)
        if name.lower() in seen:
            raise ConfigError(f"{field!r} has {name!r} twice", field=field)
        seen.add(name.lower())


def _refused(name: str) -> str:
    """Return why a header is never sent on; `""` if it may be."""
    if name in _CREDENTIALS:
        return (
            "holds credentials for the gateway itself, and a token of one server is never sent to another; to call the "
            'server as each user, give `"auth": {"type": "oauth", "identity": "caller"}`'
        )
    if name in _OF_ONE_HOP:
        return "is about one connection and not about a caller"
    if name in _OF_THE_PROTOCOL or name.startswith("mcp-"):
        return "is set by the protocol"
    return ""
