"""What a soak proves: every call against the log of its server. Pure; starts and measures nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["REPEATABLE", "Disturbance", "Record", "Violation", "executions", "judge", "memory_growth"]

REPEATABLE = frozenset({"again"})
"""Tools that are declared harmless to repeat."""
SLACK_SECONDS = 15.0
"""How long after a blow its effects may still be met: the server comes back, stopped processes catch up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One call as its caller saw it.

    Attributes:
        outcome: `ok`, `wrong` (an answer that is not this call's), `cancelled`, or an `ErrorKind`.
        slow: Whether the tool takes longer than its bound, on purpose.
    """

    id: str
    server: str
    tool: str
    outcome: str
    began: float
    ended: float
    slow: bool = False
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """What was done to a server, and when; `ends` differs from `at` for what lasts."""

    server: str
    act: str
    at: float
    ends: float

    @property
    def breaks(self) -> bool:
        """Whether a connection may break of it."""
        return self.act in ("kill", "term", "break")


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A promise that was broken."""

    rule: str
    detail: str


def executions(lines: Iterable[str]) -> Counter[str]:
    """Return how often each id was executed, from a server's log."""
    return Counter(line.split()[1] for line in lines if line.count(" ") >= 2)


def judge(
    records: Sequence[Record], executed: Mapping[str, int], disturbances: Sequence[Disturbance]
) -> list[Violation]:
    """Return every violation."""
    by_server: dict[str, list[Disturbance]] = {}
    for blow in disturbances:
        by_server.setdefault(blow.server, []).append(blow)
    found: list[Violation] = []
    seen: Counter[str] = Counter()
    for record in records:
        seen[record.id] += 1
        near = [blow for blow in by_server.get(record.server, []) if touches(blow, record)]
        rule = broken_rule(record, executed.get(record.id, 0), near)
        if rule is not None:
            detail = f"{record.id} {record.tool} on {record.server}: {record.outcome} {record.detail}".strip()
            found.append(Violation(rule=rule, detail=f"{detail}, executed {executed.get(record.id, 0)} times"))
    found += [Violation(rule="a call ended twice", detail=ident) for ident, count in seen.items() if count > 1]
    strangers = [ident for ident in executed if ident not in seen]
    found += [Violation(rule="an executed call never ended", detail=ident) for ident in strangers]
    return found


def touches(blow: Disturbance, record: Record) -> bool:
    """Whether a blow may have had to do with a call."""
    return blow.at <= record.ended and blow.ends + SLACK_SECONDS >= record.began


def broken_rule(record: Record, times: int, near: Sequence[Disturbance]) -> str | None:
    """Return the rule that a call broke, or None."""
    if times > (2 if record.tool in REPEATABLE else 1):
        return "a call was executed more often than it may be"
    match record.outcome:
        case "ok":
            return None if times else "an answer without an execution"
        case "cancelled":
            return None
        case "wrong":
            return "an answer that is not this call's"
        case "execution_failed":
            return None if record.tool == "fail" and times else "a call failed that should not"
        case "not_found" | "protocol" if record.tool == "extra":
            return "a call was executed that was said not to exist" if times else None
        case "not_sent" if times:
            return "a call was executed that was said not to be sent"
        case "not_sent" | "outcome_unknown":
            return None if any(blow.breaks for blow in near) else "a call was lost though nothing broke"
        case "timeout":
            return None if record.slow or near else "a call timed out though nothing held it up"
        case _:
            return "an outcome that nobody can use"


def memory_growth(samples: Sequence[int]) -> tuple[int, int]:
    """Return the median of the samples after the warm-up, a quarter of the time, and of the last eighth."""
    size = len(samples)
    early, late = sorted(samples[size // 4 : size // 4 + max(1, size // 8)]), sorted(samples[-max(1, size // 8) :])
    return early[len(early) // 2], late[len(late) // 2]
