"""Questions for a client's language model that a model of the server's answers, where the client has none.

Independent of models: the answering model is a port.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import anyio

from toolweave.errors import ErrorKind, ToolError
from toolweave.protocol import methods
from toolweave.protocol.client_requests import ABILITIES, SamplingResult, can_answer, sampling_result_json
from toolweave.serve.request import Json
from toolweave.tools import Question

_log = logging.getLogger("toolweave.serve")

_OURS = ABILITIES["sampling.tools"]
"""A model has no context of other servers to give, as a client may have."""


@runtime_checkable
class AnswersSampling(Protocol):
    """Answers the parameters of `sampling/createMessage`: `SamplingModel` of `toolweave.models`."""

    @property
    def always(self) -> bool:
        """Whether it answers also for clients that have a model of their own."""
        ...

    async def answer(self, params: Mapping[str, Any]) -> SamplingResult:
        """Return the answer."""
        ...


class SamplingFallback:
    """Decides which questions the server answers itself, and has them answered.

    Args:
        model: Answers them; None answers none.
        timeout: Timeout of an answer in seconds.
    """

    def __init__(self, model: AnswersSampling | None, timeout: float) -> None:
        self.model = model
        self._timeout = timeout

    def takes(self, question: Question, declared: Mapping[str, Any]) -> bool:
        """Whether the server answers a question to a client that declared these capabilities."""
        if self.model is None or question.method != methods.SAMPLING_CREATE_MESSAGE:
            return False
        if not can_answer(question.needs(), _OURS):
            return False
        return self.model.always or not can_answer(question.needs(), declared)

    def able(self, declared: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the capabilities that can be used for a client that declared these."""
        if self.model is None or can_answer(_OURS, declared):
            return declared
        theirs: Mapping[str, Any] = declared.get("sampling") or {}
        return {**declared, "sampling": {**theirs, **_OURS["sampling"]}}

    async def answer(self, question: Question) -> Json:
        """Return the answer to a question, as a client would send it.

        Raises:
            ToolError: The model cannot answer; why is in the log.
        """
        assert self.model is not None
        try:
            with anyio.fail_after(self._timeout):
                return sampling_result_json(await self.model.answer(question.params(modern=True)))
        except TimeoutError:
            raise ToolError(
                f"the server's model did not answer within {self._timeout:g} s", kind=ErrorKind.TIMEOUT
            ) from None
        except Exception as exc:  # boundary: a provider; its text is not for callers
            _log.warning("the server's model could not answer a question for a client's", exc_info=exc)
            raise ToolError("the server's model could not answer", retryable=True) from None
