"""An audit log: a JSON line for each request, with its caller, its subject and its outcome.

Holds no argument and no result unless it is asked for: of arguments it says the names and types. A line is written with
one system call to a file that is only appended to, from the event loop: to a local file that takes microseconds.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import msgspec

from toolweave._option_checks import COUNT, FLAG, FUNCTION, MAPPING, TEXTS, OptionKind
from toolweave._value import Value
from toolweave.errors import RequestError, ToolweaveError
from toolweave.middleware._audit_file import AppendedFile
from toolweave.middleware._options import as_tuples, at_least, of_kinds, one_of
from toolweave.middleware._outcome import MAX_NAME, outcome_of, shape_of, subject_of
from toolweave.middleware._selection import TO_LEARN, learn, target_of
from toolweave.protocol import methods
from toolweave.protocol.codes import INTERNAL_ERROR
from toolweave.protocol.jsonrpc import encode_value
from toolweave.schema.problems import nearest
from toolweave.serve import CallNext, Request
from toolweave.serve.request import Json
from toolweave.tools.selection import fits

_log = logging.getLogger("toolweave.middleware")


_KINDS: Mapping[str, OptionKind] = {
    "required": FLAG,
    "methods": TEXTS,
    "extra": MAPPING,
    "keep_days": COUNT.or_none,
    "sink": FUNCTION.or_none,
    "clock": FUNCTION,
}


class AuditLog(Value, frozen=True, kw_only=True):
    """Middleware that writes a JSON line for each request once it is answered.

    Members: `time` (RFC 3339, UTC), `principal` (`client`, `issuer`, `subject`; null without a token), `client` (its
    name and version as it says), `revision`, `conversation`, `method`, `name`, `server`, `arguments`, `outcome` (`ok`,
    `tool_error`, `input_required`, `task`, `cancelled`, `error`), `code` of an error, `duration_ms`.

    Attributes:
        path: The file. Moved away, it is made again; it may be truncated in place.
        sink: Called with each line instead, as bytes with the line end.
        arguments: `shapes` for names and types, `values`, or `none`.
        methods: Globs of the methods that are logged; by default all but `ping`.
        required: A request is refused (-32603) unless a line about its beginning was written before it. Otherwise a
            line that cannot be written is an error in the log, and the request continues.
        extra: Members that every line has.
        keep_days: Days that lines are kept. The file of a day is moved to `PATH.YYYY-MM-DD` (UTC) with the first line
            of another day, and deleted once it is older. None keeps one file, which other programs may move.
        clock: Returns the time in seconds since the epoch.

    Raises:
        ValueError: There is neither a path nor a sink, or both; or `keep_days` is not a whole number
            from 1 on, or goes with a sink.
    """

    repr_exclude: ClassVar[frozenset[str]] = frozenset({"clock", "sink"})
    ports: ClassVar[frozenset[str]] = frozenset({"clock", "sink"})
    reads_results: ClassVar[bool] = False
    judges_offers: ClassVar[bool] = False
    path: str | None = None
    sink: Callable[[bytes], object] | None = None
    arguments: Literal["shapes", "values", "none"] = "shapes"
    methods: Sequence[str] = ()
    required: bool = False
    extra: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])
    keep_days: int | None = None
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        as_tuples(self, "methods")
        of_kinds(self, _KINDS)
        _check_methods(self.methods)
        one_of(self, "arguments", "shapes", "values", "none")
        if (self.path is None) == (self.sink is None):
            raise ValueError("AuditLog requires either a path or a sink, not both")
        at_least(self, 1, "keep_days")
        if self.path is not None:
            file = AppendedFile(Path(self.path), keep_days=self.keep_days, clock=self.clock)
            msgspec.structs.force_setattr(self, "sink", file)
        elif self.keep_days is not None:
            raise ValueError("AuditLog: keep_days goes with a path; lines of a sink are kept by their reader")

    async def __call__(self, request: Request, call_next: CallNext) -> Json:
        """Answer a request, and write a line about it.

        Raises:
            RequestError: The log is required and cannot be written.
        """
        if not (fits(self.methods, request.method) if self.methods else request.method != methods.PING):
            return await call_next(request)
        if request.method in TO_LEARN:
            with suppress(ToolweaveError):  # an upstream that cannot be listed costs no line
                await learn(request)
        line = self._begun(request)
        # Before the call and not only after it: an effect must not exist for which the log has no line, even if this
        # process dies during the call.
        if self.required and not self._write({**line, "outcome": "begun"}):
            raise RequestError("the request was not made: the audit log cannot be written", code=INTERNAL_ERROR)
        began = time.perf_counter()
        # Assumed until the call returns: a cancellation leaves through `finally` alone, and is logged as one.
        line["outcome"] = "cancelled"
        try:
            result = await call_next(request)
            line["outcome"] = outcome_of(result)
        except RequestError as exc:
            line |= {"outcome": "error", "code": exc.code}
            raise
        finally:
            self._write({**line, "duration_ms": round((time.perf_counter() - began) * 1000, 3)})
        return result

    def _begun(self, request: Request) -> Json:
        client, identity = request.client, request.client.identity
        name = subject_of(request)
        target = target_of(request)
        line: Json = {
            "time": _time_text(self.clock()),
            "principal": None,
            "client": _client(client.info),
            "revision": client.version or None,
            "conversation": client.conversation,
            "method": request.method,
            "name": None if name is None else name[:MAX_NAME],
            "server": None if target is None else target.servers[0],
        }
        if identity is not None:
            line["principal"] = {
                "client": identity.client_id,
                "issuer": identity.issuer,
                "subject": identity.subject,
            }
        if self.arguments != "none" and "arguments" in request.params:
            given = request.params["arguments"]
            line["arguments"] = given if self.arguments == "values" else shape_of(given)
        # Last, so that the members of the operator win over those that a request has filled.
        line.update(self.extra)
        return line

    def _write(self, line: Json) -> bool:
        sink = cast("Callable[[bytes], object]", self.sink)
        try:
            # Lenient: a lone surrogate or a NaN in the arguments must not be a way to stay out of the log.
            sink(encode_value(line, errors="replace", allow_nan=True) + b"\n")
        except Exception as exc:
            # Boundary: a sink may be anybody's; a call is not lost without a word.
            _log.error("a line of the audit log cannot be written: %s: %s", type(exc).__name__, exc)
            return False
        return True


def _time_text(seconds: float) -> str:
    """Return a time since the epoch as RFC 3339 has it, in UTC and with milliseconds."""
    milliseconds = int(seconds * 1000)
    return f"{_second_text(milliseconds // 1000)}.{milliseconds % 1000:03d}Z"


@lru_cache(maxsize=16)
def _second_text(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").removesuffix("+00:00")


def _client(info: Mapping[str, Any] | None) -> Json | None:
    if info is None:
        return None
    # Cut, because a client chooses these texts and every one of its lines has them.
    return {name: str(info.get(name, ""))[:MAX_NAME] for name in ("name", "version")}


def _check_methods(globs: Sequence[str]) -> None:
    """Check the methods to log: one that fits no method of MCP is an extension's, or a slip that would log nothing.

    Raises:
        ValueError: It is nearly one of MCP's.
    """
    for glob in globs:
        if any(fits((glob,), method) for method in methods.ALL):
            continue
        near = nearest(glob, methods.ALL, n=1)
        if near:
            raise ValueError(f"AuditLog: methods: no method fits {glob!r}; did you mean {near[0]!r}?")
