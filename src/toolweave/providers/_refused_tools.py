"""Definitions that a model's API refused, and the bounds that it named: remembered by a model for all of its requests.

A definition is known by its content, so that one that its server has corrected is offered again.
"""

from __future__ import annotations

import logging
from enum import IntEnum
from hashlib import sha256

from toolweave._value import Value
from toolweave.errors import printable
from toolweave.tools import ToolSpec
from toolweave.tools.arguments import encode

_log = logging.getLogger("toolweave.tools")

_MAX_REFUSED = 10_000


class OfferedForm(IntEnum):
    """The form in which a definition is offered to an API; each is accepted by more APIs than the one before."""

    WHOLE = 0
    NOT_STRICT = 1
    SIMPLIFIED = 2
    LEFT_OUT = 3


class DefinitionRefusal(Value, frozen=True):
    """The form in which a definition is offered after refusals, and the API's last reason."""

    offer: OfferedForm
    reason: str


_NONE = DefinitionRefusal(OfferedForm.WHOLE, "")


class RefusedTools:
    """The refusals of one model's API.

    Args:
        repairs: Whether refused tools are sent again in another form.

    Attributes:
        repairs: Whether refused tools are sent again in another form.
        version: Rises with each refusal: definitions of an earlier version are out of date.
        max_description: Maximum characters of a description, as the API reported it, or None.
        max_tools: Maximum number of tools in a request, as the API reported it, or None.
    """

    def __init__(self, *, repairs: bool = True) -> None:
        self.repairs = repairs
        self.version = 0
        self.max_description: int | None = None
        self.max_tools: int | None = None
        self._refusals: dict[bytes, DefinitionRefusal] = {}
        self._problems: dict[str, None] = {}

    @property
    def problems(self) -> tuple[str, ...]:
        """The refusals of the API, each as one sentence with its consequence."""
        return tuple(self._problems)

    def of(self, spec: ToolSpec) -> DefinitionRefusal:
        """Return the refusal of a definition; one with the offer `WHOLE` if it was never refused."""
        if self._refusals:
            return self._refusals.get(_key(spec), _NONE)
        return _NONE

    def is_simplified(self, spec: ToolSpec) -> bool:
        """Return whether a definition is in its simplest form already, or left out."""
        return self.of(spec).offer >= OfferedForm.SIMPLIFIED

    def refuse(self, spec: ToolSpec, reason: str, *, strict: bool) -> bool:
        """Record that a definition was refused; return whether it has another form, or can be left out.

        Args:
            spec: The definition.
            reason: The API's text.
            strict: Whether it was sent as a strict tool.
        """
        before = self.of(spec).offer
        if before is OfferedForm.LEFT_OUT or len(self._refusals) >= _MAX_REFUSED:
            return False
        if strict and before is OfferedForm.WHOLE:
            offer = OfferedForm.NOT_STRICT
        else:
            # A tool that was not strict was not refused for that, so this form is skipped.
            offer = max(OfferedForm(before + 1), OfferedForm.SIMPLIFIED)
        self._refusals[_key(spec)] = DefinitionRefusal(offer, reason)
        consequence = {
            OfferedForm.NOT_STRICT: "it is sent without strict mode",
            OfferedForm.SIMPLIFIED: "it is sent with a simplified schema",
            OfferedForm.LEFT_OUT: "it is not offered to the model",
        }[offer]
        self._report(f"tool {spec.name!r} was refused by the model's API, so {consequence}: {reason}")
        return True

    def learn_max_tools(self, number: int) -> None:
        """Record the maximum number of tools that the API reported."""
        if self.max_tools is None:
            self.max_tools = number
        else:
            self.max_tools = min(number, self.max_tools)
        self._report(f"the model's API takes {number} tools in a request, so the rest is not offered to the model")

    def learn_max_description(self, number: int) -> None:
        """Record the maximum characters of a description that the API reported."""
        if self.max_description is None:
            self.max_description = number
        else:
            self.max_description = min(number, self.max_description)
        self._report(f"the model's API takes {number} characters of a tool's description, so longer ones are split")

    def _report(self, problem: str) -> None:
        self.version += 1
        text = printable(problem)
        self._problems[text] = None
        _log.warning("%s", text)


def _key(spec: ToolSpec) -> bytes:
    return sha256(encode([spec.name, spec.description, spec.input_schema])).digest()
