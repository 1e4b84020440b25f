"""Redaction of texts in arguments, results, errors and notifications by patterns."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, TypeAlias

import msgspec

from toolweave._json import decode_json
from toolweave._json_types import as_object, as_sequence
from toolweave._option_checks import FLAG, TEXT
from toolweave._value import Value
from toolweave.errors import RequestError
from toolweave.middleware._options import as_tuples, of_kinds
from toolweave.middleware._selection import SELECTIONS, TO_LEARN, OfferSelection, learn, selected, target_of
from toolweave.protocol import methods
from toolweave.protocol.input_required import REQUEST_STATE
from toolweave.protocol.tasks import TASK_ID
from toolweave.serve import CallNext, ReplyChannel, Request
from toolweave.serve.request import Json

PATTERNS: Mapping[str, str] = {
    "email": r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}",
    "card": r"(?<![\d.])\d{4}[ -]?\d{4}[ -]?\d{4}[ -]?\d{1,7}(?![\d.])",
    "jwt": r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
    "private_key": r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    "aws_key": r"(?<![A-Z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Z0-9])",
    "github_token": r"gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{22,255}",
    "slack_token": r"xox[abprs]-[A-Za-z0-9-]{10,250}",
}
"""Patterns that can be used by their names."""

_NEEDED: Mapping[str, str] = {
    "email": "@",
    "jwt": "eyJ",
    "private_key": "-----BEGIN ",
    "aws_key": "IA",
    "github_token": "gh",
    "slack_token": "xox",
}
"""A text that is in everything that a pattern finds: to look for it first is much faster."""
_Substitution: TypeAlias = tuple[re.Pattern[str], Callable[[re.Match[str]], str], str]
"""A pattern, the function that returns the replacement of a match, and the text that every match contains."""

_RESULTS = frozenset(
    {
        methods.TOOLS_CALL,
        methods.PROMPTS_GET,
        methods.RESOURCES_READ,
        methods.COMPLETION_COMPLETE,
        methods.TASKS_GET,
        methods.TASKS_RESULT,
        methods.TASKS_UPDATE,
        methods.TASKS_CANCEL,
        methods.SUBSCRIPTIONS_LISTEN,
    }
)
_ENCODED = frozenset({"blob", "data"})
"""Members that hold base64 in the blocks that have a MIME type; no pattern is looked for there."""
_PLUMBING = frozenset({REQUEST_STATE, TASK_ID, "nextCursor", "progressToken"})
"""Members that go back to where they came from, byte for byte."""


class Redaction(Value, frozen=True, kw_only=True):
    """Middleware that replaces the matches of patterns in every text of a result, and optionally of a call's arguments.

    Errors, log messages, progress and the results of tasks are treated like results; names of members and what is
    encoded as base64 are not.

    Attributes:
        patterns: Regular expressions by name; the name alone, with an empty expression, for one of these: `email`,
            `card`, `jwt`, `private_key`, `aws_key`, `github_token`, `slack_token`.
        results: Whether results are redacted.
        arguments: Whether the arguments of calls are redacted before the tool gets them.
        replacement: The text instead; `{name}` is the name of the pattern.
        only: The tools, prompts and resources that are treated; all where none are selected.

    Raises:
        ValueError: An expression does not compile, or there is no pattern of this name.
    """

    repr_exclude: ClassVar[frozenset[str]] = frozenset({"compiled"})
    ports: ClassVar[frozenset[str]] = frozenset({"compiled"})
    patterns: Mapping[str, str]
    results: bool = True
    arguments: bool = False
    replacement: str = "[redacted {name}]"
    only: Sequence[OfferSelection] = ()
    compiled: tuple[_Substitution, ...] = ()

    def __post_init__(self) -> None:
        as_tuples(self, "only")
        of_kinds(self, {"only": SELECTIONS, "results": FLAG, "arguments": FLAG, "replacement": TEXT})
        if not as_object(self.patterns):
            raise ValueError(
                f"Redaction: patterns is a mapping of names to regular expressions, with one at least, not "
                f"{self.patterns!r}; those with a name are {', '.join(PATTERNS)}, such as {{'email': ''}}"
            )
        made: list[_Substitution] = []
        for name, pattern in self.patterns.items():
            if not pattern and name not in PATTERNS:
                raise ValueError(f"Redaction: pattern {name!r} is empty; those with a name are {', '.join(PATTERNS)}")
            try:
                compiled = re.compile(pattern or PATTERNS[name])
            except (re.error, TypeError) as exc:
                raise ValueError(f"Redaction: pattern {name!r}: {exc}") from None
            needed = "" if pattern else _NEEDED.get(name, "")
            made.append((compiled, partial(_instead, self.replacement.replace("{name}", name)), needed))
        msgspec.structs.force_setattr(self, "compiled", tuple(made))

    @property
    def reads_results(self) -> bool:
        """Whether it needs results as values, with no member left as a JSON text."""
        return self.results

    async def __call__(self, request: Request, call_next: CallNext) -> Json:
        """Answer a request with a redacted result."""
        if request.method not in _RESULTS:
            return await call_next(request)
        if request.method in TO_LEARN:
            await learn(request)
        if not self._concerns(request):
            return await call_next(request)
        # Rules in front of this middleware have judged the arguments as sent; everything behind it, the tool included,
        # gets the redacted ones.
        if self.arguments and "arguments" in request.params:
            redacted = self._value(request.params["arguments"])
            request = request.replace(params={**request.params, "arguments": redacted})
        if not self.results:
            return await call_next(request)
        # Progress, log messages and questions leave while the call runs, not with its result.
        request = request.replace(reply_channel=_RedactedReplyChannel(request.reply_channel, self._value))
        try:
            return self._value(await call_next(request))
        except RequestError as exc:
            raise RequestError(self._text(exc.message), code=exc.code, data=self._value(exc.data)) from None

    def _concerns(self, request: Request) -> bool:
        """Whether a request is one of those selected; results of tasks and notifications may be of any."""
        target = target_of(request)
        # In doubt it is redacted: a result that cannot be assigned to an offer may be of a selected one.
        return target is None or selected(self.only, target)

    def _text(self, text: str) -> str:
        for pattern, instead, needed in self.compiled:
            if needed in text:
                text = pattern.sub(instead, text)
        return text

    def _value(self, value: Any) -> Any:
        """Return a JSON value with redacted texts."""
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, msgspec.Raw):
            # A part that was left as JSON text may have its secrets in escapes (`\u0040`), which no pattern would
            # match.
            return self._value(decode_json(value))
        items = as_sequence(value)
        if items is not None:
            return list(map(self._value, items))
        members = as_object(value)
        if members is None:
            return value
        kept = _PLUMBING
        # Only in a block of content is `data` base64. A member of this name in structured content is a text like any
        # other.
        if "mimeType" in members:
            kept = _PLUMBING | _ENCODED
        return {name: one if name in kept else self._value(one) for name, one in members.items()}


def _instead(replacement: str, found: re.Match[str]) -> str:
    return replacement


class _RedactedReplyChannel:
    """A reply channel whose notifications and questions are redacted."""

    def __init__(self, reply_channel: ReplyChannel, value: Any) -> None:
        self._reply_channel = reply_channel
        self._value = value

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        await self._reply_channel.notify(method, self._value(params))

    async def ask(self, method: str, params: Mapping[str, Any]) -> Json:
        return await self._reply_channel.ask(method, self._value(params))

    async def release(self) -> None:
        await self._reply_channel.release()
