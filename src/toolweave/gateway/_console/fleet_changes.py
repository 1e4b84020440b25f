"""Changes that a form makes at all replicas of a gateway, and the outcomes that its page reports."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from toolweave.gateway._console.fleet_rows import read_replies
from toolweave.gateway._console.requests import ConsoleRequest
from toolweave.gateway._replicas.fleet import FleetReplies
from toolweave.serve.request import Json


class ChangeOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a change at one replica; without any text, it did not have the object of the change.

    Attributes:
        texts: The changes.
        problems: The reasons why something was not changed.
    """

    texts: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def outcome(*texts: str, problems: Sequence[str] = ()) -> Json:
    """Return the outcome of a change as a reply."""
    return msgspec.to_builtins(ChangeOutcome(texts=texts, problems=tuple(problems)))


def report(asked: ConsoleRequest, replies: FleetReplies) -> bool:
    """Show the outcomes on the next page, equal ones once; return whether any replica had the object of the change."""
    found, silent = read_replies(replies, ChangeOutcome)
    notices: dict[tuple[str, bool], list[str]] = {}
    for peer, one in found.items():
        for text in one.texts:
            notices.setdefault((text, False), []).append(peer.name)
        for text in one.problems:
            notices.setdefault((text, True), []).append(peer.name)
    for peer, reason in silent.items():
        notices.setdefault((f"Nothing was changed: {reason}.", True), []).append(peer.name)
    for (text, problem), names in notices.items():
        everywhere = len(names) == len(found) + len(silent)
        asked.signed_in.say(text if everywhere else f"{', '.join(names)}: {text}", problem=problem)
    return bool(notices)
