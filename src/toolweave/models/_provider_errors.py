"""Error responses of providers: one `ModelError` from a status and a body. Pure; sends nothing.

Reads the error bodies of OpenAI, Anthropic, Gemini, Ollama, llama.cpp, vLLM and OpenRouter. A provider's text is
untrusted: it is truncated, and control characters are removed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from toolweave._json import decode_json
from toolweave._json_types import (
    JsonObject,
    array_or_empty,
    as_array,
    as_object,
    object_or_empty,
    text_or_empty,
)
from toolweave.errors import ModelError
from toolweave.models._base import Finished
from toolweave.models._messages import AssistantMessage, TextPart

MALFORMED = re.compile(r"malformed_function_call|unexpected_tool_call", re.IGNORECASE)
"""Gemini's finish reason of a turn whose call it could not parse; it comes with more words around it."""

_FAILED_CALL = re.compile(r"tool_use_failed", re.IGNORECASE)
"""Groq's code for the same."""

_LONGEST = 600
# Characters that are searched for what looks like a key, which takes time by their square.
_READ = 4_000
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
_MEMBERS = ("error", "message", "detail", "errors", "msg")

_BY_WORDS = (
    (
        "auth",
        re.compile(
            r"insufficient_quota|billing|credit balance|invalid_api_key|authentication_error|permission_"
            r"|API key not valid"
        ),
    ),
    (
        "too_long",
        re.compile(
            r"context_length_exceeded|maximum context length|context window|exceed_context_size|prompt is too long"
            r"|request_too_large|input is too long|exceed context limit|available context size|maximum prompt length"
            r"|maximum number of tokens allowed|reduce the length of the messages",
            re.IGNORECASE,
        ),
    ),
    ("invalid_request", re.compile(r"image input is not supported|missing data required for image", re.IGNORECASE)),
    ("rate_limited", re.compile(r"(?i:rate_limit|rate limit|too many requests)|RESOURCE_EXHAUSTED")),
    ("overloaded", re.compile(r"(?i:overloaded)|server_error|api_error|UNAVAILABLE")),
    ("refused", re.compile(r"content_filter|content_policy")),
)
_BY_STATUS = {
    401: "auth",
    402: "auth",
    403: "auth",
    408: "overloaded",
    409: "overloaded",
    413: "too_long",
    429: "rate_limited",
    501: "invalid_request",
    505: "invalid_request",
}
_SECRETS = re.compile(
    r"(?P<before>[?&][\w.-]*(?:auth|key|token|secret|sig)[\w.-]*=|\bbearer\s+)[^\s&\"'<>;,)]+"
    r"|\b(?:sk|gsk|xai|pplx|hf)[-_][\w-]{12,}|\bAIza[\w-]{12,}",
    re.IGNORECASE,
)
_DELAY = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)s")
_HINTS = {
    "auth": "check the API key and the account",
    "too_long": "the conversation does not fit the model; shorten it or offer fewer tools",
}


def malformed_turn(error: ModelError) -> Finished | None:
    """Return the turn of a model whose provider could not read its call; None for any other error."""
    if error.malformed_call is None:
        return None
    if error.malformed_call:
        parts = (TextPart(text=error.malformed_call),)
    else:
        parts = ()
    message = AssistantMessage(parts=parts)
    return Finished(message=message, stop_reason="malformed_call", stop_detail=error.message)


def refusal(
    model: str,
    body: Any,
    *,
    status: int | None = None,
    retry_after: float | None = None,
    redact: Callable[[str], str] = str,
    through: str = "",
) -> ModelError:
    """Return the error for a failed request: `body` is the decoded JSON, or text; `redact` masks secrets in a text.

    `through` is the way of an answer that a proxy may have given.

    Without a `status` it is an error that came within a stream; a number in its `code` counts as one.
    """
    upstream, name = _upstream(body)
    words = f"{_words(body)} {_words(upstream)}"
    if status is None:
        status = _code(body)
    kind = _kind(status, words)
    if retry_after is None:
        retry_after = _delay(body)
    text = short(redact(_message(upstream) or _message(body))) or "no reason was given"
    if name:
        text = f"{short(redact(name))}: {text}"
    where = f"HTTP {status}: " if status is not None else ""
    hint = f" ({_HINTS[kind]})" if kind in _HINTS else ""
    return ModelError(
        f"{where}{text}{through}{hint}",
        model=model,
        kind=kind,
        status=status,
        retry_after=retry_after,
        param=short(redact(_param(upstream) or _param(body))),
        malformed_call=redact(_generation(body)[:_READ]) if _FAILED_CALL.search(words) else None,
    )


def without_secrets(text: str) -> str:
    """Return a text's beginning with anything like a key masked, for errors of a library whose keys we do not know."""
    return _SECRETS.sub(lambda found: f"{found['before'] or ''}***", text[:_READ])


def short(text: str) -> str:
    """Return a provider's text as one short line for an error."""
    text = _CONTROL.sub(" ", text).strip()
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]}..."


def _kind(status: int | None, words: str) -> str:
    if status not in (401, 403):
        for kind, pattern in _BY_WORDS:
            if pattern.search(words):
                return kind
    if status is None:
        return "protocol"
    return _BY_STATUS.get(status, "overloaded" if status >= 500 else "invalid_request")


def _error_members(body: object) -> JsonObject:
    members = object_or_empty(body)
    error = as_object(members.get("error"))
    if error is None:
        return members
    return error


def _upstream(body: object) -> tuple[object, str]:
    """Return the error body of the provider behind a router, and its name; OpenRouter sends it as JSON text."""
    members = object_or_empty(_error_members(body).get("metadata"))
    raw = members.get("raw")
    if isinstance(raw, str):
        with suppress(ValueError, RecursionError):
            raw = decode_json(raw)
    return raw, text_or_empty(members.get("provider_name"))


def _generation(body: object) -> str:
    return text_or_empty(_error_members(body).get("failed_generation"))


def _param(body: object) -> str:
    """Return the part of the request that an error body names: as `param`, or as `loc` in a list of details."""
    members = _error_members(body)
    param = members.get("param")
    if isinstance(param, str):
        return param
    for name in ("detail", "details", "errors"):
        for detail in array_or_empty(members.get(name)):
            place = as_array(object_or_empty(detail).get("loc"))
            if place is not None:
                return ".".join(map(str, place))
    return ""


# Providers wrap errors in errors, and some in a list of one. The functions below follow them a few levels deep: a body
# comes from outside, so the number of levels needs a bound.


def _unlisted(body: object) -> object:
    """Return the first entry of a list, and any other value as it is."""
    entries = as_array(body)
    if entries is None:
        return body
    return next(iter(entries), None)


def _message(body: object) -> str:
    """Return the text of an error body, however deep the provider wraps it."""
    for _ in range(4):
        body = _unlisted(body)
        members = as_object(body)
        if members is None:
            break
        body = next(filter(None, map(members.get, _MEMBERS)), "")
    return text_or_empty(body)


def _words(body: object) -> str:
    """Return the message with its codes and types, from which the kind of error is read."""
    words = [_message(body)]
    for _ in range(3):
        members = object_or_empty(_unlisted(body))
        words += [text_or_empty(members.get(name)) for name in ("type", "code", "status")]
        body = members.get("error")
    return " ".join(filter(None, words))


def _delay(body: object) -> float | None:
    """Return the delay in seconds that Google sends in the body (google.rpc.RetryInfo)."""
    for _ in range(3):
        members = object_or_empty(_unlisted(body))
        for detail in array_or_empty(members.get("details")):
            found = _DELAY.fullmatch(str(object_or_empty(detail).get("retryDelay")))
            if found is not None:
                return float(found.group(1))
        body = members.get("error")
    return None


def _code(body: object) -> int | None:
    for _ in range(2):
        members = object_or_empty(body)
        code = members.get("code")
        if isinstance(code, int) and 400 <= code < 600:
            return code
        body = members.get("error")
    return None
