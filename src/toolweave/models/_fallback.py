"""Several models as one: if one fails, the next one answers. Knows no provider."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Self

from toolweave.errors import ModelError
from toolweave.models._base import Finished, Model, ModelEvent, ModelRequest, StreamRestarted
from toolweave.models._prices import priced

_log = logging.getLogger("toolweave.models")

_FINAL = frozenset({"refused"})
"""Kinds of errors after which no other model is asked: a refusal is an answer."""


class FallbackModel:
    """The first of several models that can answer, in order.

    The next model is asked when one fails: busy, out of reach, no key, a conversation too long for it, a stream that
    breaks off; after the first words `StreamRestarted` says that those are void. A refusal is final.

    Attributes:
        models: The models, in order.
    """

    def __init__(self, first: Model, *others: Model) -> None:
        self.models: tuple[Model, *tuple[Model, ...]] = (first, *others)

    @property
    def name(self) -> str:
        """The names of the models, `" | "` between them."""
        return " | ".join(model.name for model in self.models)

    @property
    def native_tool_search(self) -> bool:
        """Whether every one of the models searches tools itself."""
        return all(getattr(model, "native_tool_search", False) for model in self.models)

    @property
    def problems(self) -> tuple[str, ...]:
        """The refusals of the APIs of the models; see `OpenAICompatibleModel.problems`."""
        found: list[str] = []
        for model in self.models:
            found += getattr(model, "problems", ())
        return tuple(found)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the events of the first model that can answer.

        Raises:
            ModelError: All failed; the text has each reason, and the kind is a temporary one if any of them is.
        """
        failures: list[ModelError] = []
        for model in self.models:
            begun = False
            try:
                async with aclosing(model.stream(request)) as events:
                    async for event in events:
                        begun = True
                        yield priced(event, model) if isinstance(event, Finished) else event
                return
            except ModelError as exc:
                if exc.kind in _FINAL:
                    raise
                failures.append(exc)
                _log.warning("%s%s", exc, "" if model is self.models[-1] else "; the next model is asked")
                error = exc
            if begun and model is not self.models[-1]:
                yield StreamRestarted(error=error)
        raise self._all_failed(failures)

    async def aclose(self) -> None:
        """Close the connections of those models that hold some."""
        for model in self.models:
            close = getattr(model, "aclose", None)
            if close is not None:
                await close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def _all_failed(self, failures: list[ModelError]) -> ModelError:
        if len(failures) == 1:
            return failures[0]
        telling = next((one for one in failures if one.retryable), failures[-1])
        waits = [one.retry_after for one in failures if one.retry_after is not None]
        return ModelError(
            f"no model could answer: {'; '.join(map(str, failures))}",
            model=self.name,
            kind=telling.kind,
            status=telling.status,
            retry_after=min(waits, default=None),
        )

    def __repr__(self) -> str:
        return f"FallbackModel({', '.join(map(repr, self.models))})"
