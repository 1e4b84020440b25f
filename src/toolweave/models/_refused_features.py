"""Optional request features: left out once a server has refused them, as the model remembers."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace

from toolweave.errors import ModelError
from toolweave.models._base import ModelEvent, ModelRequest
from toolweave.models._messages import ToolMessage
from toolweave.models._tool_repairs import SentTools, ToolRepairs
from toolweave.protocol.content import ImageContent

_log = logging.getLogger("toolweave.models")

_OUTPUT = re.compile(
    r"response[_ ]?format|json[_ ]schema|json mode|structured[ _-]?output|output_config|output_format|text\.format"
    r"|grammar",
    re.IGNORECASE,
)
_STRICT = re.compile(r"\bstrict\b|compiled grammar|schema is too complex", re.IGNORECASE)
_IMAGES = re.compile(
    r"image|vision|multi-?modal|content must be a string|content: Input should be a valid string", re.IGNORECASE
)


class RefusedFeatures:
    """The request features that a model's server has refused so far.

    Attributes:
        images: Whether images of tools' results may be sent in user messages.
    """

    def __init__(self) -> None:
        self.images = True
        self._strict = True
        self._output: set[bool] = set()

    def adapted(self, request: ModelRequest) -> ModelRequest:
        """Return the request without refused features; a refused output schema goes into the system prompt."""
        if request.settings.strict_tools and not self._strict:
            request = replace(request, settings=replace(request.settings, strict_tools=False))
        # some servers take a schema, but not with tools
        if bool(request.tools) in self._output:
            return prompted(request)
        return request

    async def stream(
        self,
        request: ModelRequest,
        send: Callable[[ModelRequest, SentTools], AsyncGenerator[ModelEvent, None]],
        repairs: ToolRepairs,
    ) -> AsyncGenerator[ModelEvent, None]:
        """Yield the events of `send`; retry without a feature or a tool that the server refuses before the first event.

        Raises:
            ModelError: From `send`, if nothing can be left out, or an event was yielded already.
        """
        while True:
            adapted = self.adapted(request)
            begun = False
            sent = SentTools()
            try:
                async with aclosing(send(adapted, sent)) as events:
                    async for event in events:
                        begun = True
                        yield event
                return
            except ModelError as exc:
                if begun or not self._is_repaired(exc, adapted, sent, repairs):
                    raise
                _log.info("%s; sending it again without that", exc)

    def _is_repaired(self, error: ModelError, request: ModelRequest, sent: SentTools, repairs: ToolRepairs) -> bool:
        # An error that names a tool is about that tool, whatever other words it has: `Invalid JSON schema` with the
        # path of an argument would otherwise cost the answer its schema.
        if repairs.of_named(error, sent):
            return True
        return self.refused(error, request) or repairs.of_unnamed(error, sent)

    def refused(self, error: ModelError, request: ModelRequest) -> bool:
        """Record the feature that an error refuses; return whether to retry the request without it."""
        if error.kind != "invalid_request":
            return False
        if request.settings.strict_tools and request.tools and _STRICT.search(error.message):
            self._strict = False
            return True
        if request.output_schema is not None and _OUTPUT.search(error.message):
            self._output.add(bool(request.tools))
            return True
        if self.images and _IMAGES.search(error.message) and _has_images(request):
            self.images = False
            return True
        return False


def prompted(request: ModelRequest) -> ModelRequest:
    """Return a request with its output schema in the system prompt, for a server without structured output."""
    if request.output_schema is None:
        return request
    asked = "Answer with nothing but JSON, without a code fence, that fits this JSON Schema:\n" + json.dumps(
        dict(request.output_schema), ensure_ascii=False
    )
    return replace(request, system=f"{request.system}\n\n{asked}" if request.system else asked, output_schema=None)


def _has_images(request: ModelRequest) -> bool:
    for message in request.messages:
        if not isinstance(message, ToolMessage):
            continue
        for outcome in message.outcomes:
            if any(isinstance(block, ImageContent) for block in outcome.result.for_model().content):
                return True
    return False
