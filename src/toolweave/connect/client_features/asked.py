"""Answers what a server asks of its client: reads the request, runs the callback, shapes the answer.

Knows no transport and no era: a legacy server sends these requests itself, a modern one puts them into
`input_required` results. What a server sends is untrusted, and what a callback raises is not told to it.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping
from typing import Any, cast

from toolweave.connect.client_features.callbacks import (
    Callbacks,
    ElicitationRequest,
    ElicitationResult,
    LogMessage,
    Root,
    SamplingMessage,
    SamplingRequest,
    SamplingResult,
)
from toolweave.connect.feed.listing import read_tools
from toolweave.errors import ProtocolError, SchemaError, printable
from toolweave.protocol import methods
from toolweave.protocol.codes import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from toolweave.protocol.content import content_block
from toolweave.protocol.meta import TASKS_EXTENSION
from toolweave.protocol.narrow import as_array, as_object, as_text
from toolweave.schema.problems import describe
from toolweave.schema.validate import Validator
from toolweave.tools.asking import content_json

__all__ = ["Asked", "client_capabilities", "log_message"]

REJECTED = -1
"""The code of a sampling request that the user turned down (client/sampling, Error Handling)."""

_log = logging.getLogger("toolweave.connect")


def client_capabilities(callbacks: Callbacks, *, modern: bool) -> dict[str, Any]:
    """Return the capabilities that these callbacks make, as the era writes them."""
    made: dict[str, Any] = {}
    if callbacks.sampling is not None:
        made["sampling"] = {"tools": {}} if callbacks.sampling_tools else {}
    if callbacks.elicitation is not None:
        made["elicitation"] = {"form": {}, "url": {}}
    if callbacks.roots is not None:
        made["roots"] = {} if modern else {"listChanged": True}
    if modern:
        made["extensions"] = {TASKS_EXTENSION: {}}
    return made


def log_message(params: Mapping[str, Any], server: str) -> LogMessage:
    """Return a `notifications/message` as a value."""
    level, logger = as_text(params.get("level")), as_text(params.get("logger"))
    return LogMessage(server=server, level=level or "info", logger=logger, data=params.get("data"))


class Asked:
    """Answers the requests of one server.

    Attributes:
        roots: The roots as they are now: a sequence, or a callable that returns one.
    """

    def __init__(self, callbacks: Callbacks, server: str) -> None:
        self.roots = callbacks.roots
        self._callbacks = callbacks
        self._server = server

    async def answer(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result of one request.

        Raises:
            ProtocolError: The refusal, with the code that the server is told.
        """
        try:
            match method:
                case methods.SAMPLING_CREATE_MESSAGE if self._callbacks.sampling is not None:
                    return await self._sample(params)
                case methods.ELICITATION_CREATE if self._callbacks.elicitation is not None:
                    return await self._elicit(params)
                case methods.ROOTS_LIST if self.roots is not None:
                    return await self._list_roots()
                case _:
                    raise self.refusal(METHOD_NOT_FOUND, f"this client does not offer {method}")
        except ProtocolError:
            raise
        except Exception:  # boundary: an odd request, or an odd answer of a callback
            _log.exception("server %r: its request %r could not be answered", self._server, method)
        raise self.refusal(INTERNAL_ERROR, "the client failed to answer")

    async def _sample(self, params: Mapping[str, Any]) -> dict[str, Any]:
        messages = as_array(params.get("messages"))
        if messages is None:
            raise self.refusal(INVALID_PARAMS, "a sampling request needs a list of messages")
        if not self._callbacks.sampling_tools and ("tools" in params or "toolChoice" in params):
            raise self.refusal(INVALID_PARAMS, "this client did not declare sampling with tools")
        max_tokens, temperature = params.get("maxTokens"), params.get("temperature")
        request = SamplingRequest(
            server=self._server,
            messages=tuple(_message(item) for item in map(as_object, messages) if item is not None),
            system_prompt=as_text(params.get("systemPrompt")),
            max_tokens=max_tokens if isinstance(max_tokens, int) else None,
            temperature=float(temperature) if isinstance(temperature, (int, float)) else None,
            tools=tuple(read_tools(as_array(params.get("tools")) or [], server=self._server).items),
            tool_choice=as_text((as_object(params.get("toolChoice")) or {}).get("mode")) or "auto",
            raw=params,
        )
        answer = await self._run("sampling", self._callbacks.sampling, request)
        if answer is None:
            raise self.refusal(REJECTED, "the user rejected the sampling request")
        made = SamplingResult(content=answer) if isinstance(answer, str) else answer
        if not isinstance(made, SamplingResult):
            text = f"the sampling callback returned {type(answer).__name__}, not a SamplingResult, a text or None"
            _log.error("server %r: %s", self._server, printable(text))
            raise self.refusal(INTERNAL_ERROR, "the client's sampling callback failed")
        result: dict[str, Any] = {"role": made.role, "content": content_json(made.content), "model": made.model}
        return result if made.stop_reason is None else result | {"stopReason": made.stop_reason}

    async def _elicit(self, params: Mapping[str, Any]) -> dict[str, Any]:
        mode, url = params.get("mode", "form"), as_text(params.get("url"))
        if mode not in ("form", "url") or (mode == "url" and not (url or "").startswith(("https://", "http://"))):
            raise self.refusal(INVALID_PARAMS, "an elicitation has mode 'form', or mode 'url' with a web address")
        request = ElicitationRequest(
            server=self._server,
            mode=mode,
            message=as_text(params.get("message")) or "",
            schema=as_object(params.get("requestedSchema")) or {},
            url=url if mode == "url" else None,
            elicitation_id=as_text(params.get("elicitationId")),
            raw=params,
        )
        try:
            answer = await self._run("elicitation", self._callbacks.elicitation, request)
        except ProtocolError:
            return {"action": "cancel"}
        if answer is None:
            answer = ElicitationResult.decline()
        elif isinstance(answer, Mapping):
            answer = ElicitationResult.accept(cast("Mapping[str, Any]", answer))
        if not isinstance(answer, ElicitationResult):
            kind = type(answer).__name__
            _log.error("server %r: the elicitation callback returned %s; cancelled", self._server, kind)
            return {"action": "cancel"}
        if answer.action != "accept" or mode == "url":
            return {"action": answer.action}
        return self._accepted(request.schema, answer.content or {})

    def _accepted(self, schema: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the consent with the form's values: its defaults filled in (SEP-1034), and valid."""
        content = dict(given)
        for name, part in (as_object(schema.get("properties")) or {}).items():
            if name not in content and "default" in (as_object(part) or {}):
                content[name] = part["default"]
        try:
            problems = Validator(schema).problems(content)
        except SchemaError as exc:
            _log.warning("server %r: the schema of its elicitation cannot be used: %s", self._server, exc)
            problems = ()
        if not problems:
            return {"action": "accept", "content": content}
        said = describe(problems)
        _log.error(
            "server %r: the elicitation callback's answer does not fit; cancelled: %s", self._server, printable(said)
        )
        return {"action": "cancel"}

    async def _list_roots(self) -> dict[str, Any]:
        roots = self.roots
        given: Any = await self._run("roots", roots) if callable(roots) else roots
        try:
            made = [Root.of(value) for value in given]
        except (TypeError, ValueError) as exc:
            _log.error("server %r: the roots callback's answer is no list of roots: %s", self._server, exc)
            raise self.refusal(INTERNAL_ERROR, "the client's roots callback failed") from None
        return {"roots": [{"uri": root.uri} | ({} if root.name is None else {"name": root.name}) for root in made]}

    async def _run(self, what: str, callback: Any, *args: Any) -> Any:
        try:
            outcome = callback(*args)
            return await outcome if inspect.isawaitable(outcome) else outcome
        except Exception:  # boundary: user code; the server is not told what went wrong here
            _log.exception("server %r: the %s callback raised", self._server, what)
        raise self.refusal(INTERNAL_ERROR, f"the client's {what} callback failed")

    def refusal(self, code: int, message: str) -> ProtocolError:
        """Make the error of a request that is not answered."""
        return ProtocolError(message, server=self._server, code=code)


def _message(raw: Mapping[str, Any]) -> SamplingMessage:
    content = raw.get("content")
    items = as_array(content)
    return SamplingMessage(
        role=as_text(raw.get("role")) or "user",
        content=tuple(content_block(item) for item in (items if items is not None else [content])),
        raw=raw,
    )
