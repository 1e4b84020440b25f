"""Where two clients may differ in what they send, and why: the one table of the contract tests.

Each difference can be taken out of a transcript. Where one is said to hold it must be seen, and elsewhere it must not.
"""

from __future__ import annotations

import copy
import difflib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tests.contract.plays import MODERN
from tests.contract.transcript import HUNG_UP, Json, Transcript

__all__ = ["FROM_THE_CLIENT", "Difference", "differences", "without"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One deliberate difference.

    Attributes:
        what: What differs.
        why: Why it stays.
        take_out: Takes it out of a transcript, in place.
        holds: Whether it shows, by transport (`"stdio"`, `"http"`) and revision; `"sometimes"` depends on timing.
    """

    what: str
    why: str
    take_out: Callable[[Transcript], None]
    holds: Callable[[str, str], bool | Literal["sometimes"]]


def without(transcript: Transcript, taken_out: Iterable[Difference]) -> Transcript:
    """Return a transcript with these differences taken out."""
    left = copy.deepcopy(transcript)
    for difference in taken_out:
        difference.take_out(left)
    return left


def differences(
    ours: Transcript, theirs: Transcript, known: tuple[Difference, ...], *, transport: str, version: str
) -> set[str]:
    """Return which known differences show; one shows when the transcripts differ without taking it out.

    Raises:
        AssertionError: The transcripts differ by more than what is known.
    """
    left = list(
        difflib.unified_diff(_lines(without(theirs, known)), _lines(without(ours, known)), "theirs", "ours", n=1)
    )
    assert not left, "\n".join(("more differs than is known:", *left))
    found: set[str] = set()
    for difference in known:
        others = [other for other in known if other is not difference]
        shows = without(ours, others) != without(theirs, others)
        if shows and difference.holds(transport, version) != "sometimes":
            found.add(difference.what)
    return found


def _lines(transcript: Transcript) -> list[str]:
    entries = (*transcript.messages, *transcript.beside, *transcript.streams)
    return [json.dumps(entry, sort_keys=True, ensure_ascii=False) for entry in entries]


def _entries(transcript: Transcript) -> Iterator[Json]:
    yield from transcript.messages
    yield from transcript.beside


def _empty_params(transcript: Transcript) -> None:
    for entry in _entries(transcript):
        if entry.get("params") == {}:
            del entry["params"]


def _empty_arguments(transcript: Transcript) -> None:
    for entry in _entries(transcript):
        params: Json = entry.get("params", {})
        if params.get("arguments") == {}:
            del params["arguments"]


def _reasons(transcript: Transcript) -> None:
    for entry in _entries(transcript):
        if entry.get("method") == "notifications/cancelled":
            del entry["params"]["reason"]


def _closed_streams(transcript: Transcript) -> None:
    transcript.messages = [entry for entry in transcript.messages if HUNG_UP not in entry]


def _post_headers(transcript: Transcript) -> None:
    for stream in transcript.streams:
        for header in ("accept", "content-type"):
            stream["headers"].pop(header, None)


def _capabilities(transcript: Transcript) -> Iterator[Json]:
    for entry in _entries(transcript):
        params: Json = entry.get("params", {})
        meta: Mapping[str, Any] = params.get("_meta", {})
        yield params.get("capabilities") or meta.get("io.modelcontextprotocol/clientCapabilities") or {}


def _root_changes(transcript: Transcript) -> None:
    for capabilities in _capabilities(transcript):
        capabilities.get("roots", {}).pop("listChanged", None)


def _tasks(transcript: Transcript) -> None:
    for capabilities in _capabilities(transcript):
        capabilities.pop("tasks", None)
        extensions: Json = capabilities.get("extensions", {})
        if extensions.pop("io.modelcontextprotocol/tasks", None) is not None and not extensions:
            del capabilities["extensions"]


def _log_level_of_discovery(transcript: Transcript) -> None:
    for entry in transcript.messages:
        if entry.get("method") == "server/discover":
            entry["params"]["_meta"].pop("io.modelcontextprotocol/logLevel", None)


def _background(transcript: Transcript) -> None:
    transcript.beside = [entry for entry in transcript.beside if entry["method"] != "subscriptions/listen"]


def _legacy(_transport: str, version: str) -> bool:
    return version != MODERN


def _modern(_transport: str, version: str) -> bool:
    return version == MODERN


def _legacy_http(transport: str, version: str) -> bool:
    return transport == "http" and version != MODERN


def _with_a_notification(transport: str, version: str) -> bool:
    return transport == "stdio" or version != MODERN


EMPTY_PARAMS = Difference(
    what="params that would be empty",
    why="we send {}, the SDK leaves them out; JSON-RPC 2.0 and every revision's schema allow both",
    take_out=_empty_params,
    holds=_legacy,
)
REASONS = Difference(
    what="the reason of a cancellation",
    why="free text for the server's log",
    take_out=_reasons,
    holds=_with_a_notification,
)
CLOSED_STREAMS = Difference(
    what="the stream of a call that was given up",
    why="we close it as well as saying so, which frees the socket at once; the SDK leaves it to the server, and "
    "which of the two a legacy server sees first is a matter of timing",
    take_out=_closed_streams,
    holds=lambda transport, version: "sometimes" if _legacy_http(transport, version) else False,
)
POST_HEADERS = Difference(
    what="accept and content-type of requests without a body",
    why="the SDK sends those of a POST with GET and DELETE, too; the transport page asks a GET for text/event-stream",
    take_out=_post_headers,
    holds=_legacy_http,
)
FROM_THE_CLIENT = (
    EMPTY_PARAMS,
    REASONS,
    CLOSED_STREAMS,
    POST_HEADERS,
    Difference(
        what="arguments that would be empty",
        why="we send {}, the SDK's client leaves them out; some servers take only an object",
        take_out=_empty_arguments,
        holds=lambda transport, version: True,
    ),
    Difference(
        what="notifications of changed roots",
        why="revision 2026-07-28 has no such notification any more; the SDK's client promises it still",
        take_out=_root_changes,
        holds=_modern,
    ),
    Difference(
        what="tasks",
        why="we take a task for an answer; the SDK's client knows none of the revision's tasks",
        take_out=_tasks,
        holds=_modern,
    ),
    Difference(
        what="the log level of a sign of life",
        why="we ask for it with every request but the probe, the SDK's client with none of its discoveries",
        take_out=_log_level_of_discovery,
        holds=_modern,
    ),
    Difference(
        what="listening for changes",
        why="a connection of ours follows changes by itself, the SDK's client when it is told to",
        take_out=_background,
        holds=_modern,
    ),
)
"""Between a connection of ours and the SDK's own client."""
