"""Separates the thoughts that a model writes into its text, between tags, from its answer. Pure.

Servers without a parser for a model's thoughts send them as text: `<think>a draft</think>the answer`. The templates of
some models write the opening tag themselves, so that only the closing one arrives. A text about such tags must stay as
it is: an opening tag counts only at the beginning of a text, or after a first thought; a closing tag alone counts only
where no sentence can have it, next to a line break or without white space around it.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from dataclasses import replace

from toolweave._repairs import Repair
from toolweave.models._base import Finished, ModelEvent, StreamedText, StreamedThinking, StreamRestarted
from toolweave.models._messages import AssistantMessage, AssistantPart, TextPart, ThinkingPart

INLINE = "toolweave/inline"
"""Member of a thought's `raw`: its text between its tags, as the model wrote it."""

_TAGS = (("<think>", "</think>"), ("[THINK]", "[/THINK]"), ("<seed:think>", "</seed:think>"), ("◁think▷", "◁/think▷"))
_CLOSING = dict(_TAGS)
INLINE_THOUGHT = Repair(
    given="a thought in the text of an answer",
    read_as="a thought, which is not a part of the answer",
    limit="at the beginning of a text, between " + ", ".join(f"`{first}` and `{last}`" for first, last in _TAGS),
    switch="nothing: the thought is kept as a part of its message",
)
_LONGEST = max(len(tag) for pair in _TAGS for tag in pair)
_QUOTES = ("`", "'", '"')


class ThoughtSplitter:
    """Separates thoughts from text in the pieces of one turn.

    Attributes:
        found: Whether there was a thought.
    """

    def __init__(self) -> None:
        self.found = False
        self._kept = ""
        self._closing = ""
        self._plain = False

    def feed(self, text: str) -> Iterator[ModelEvent]:
        """Yield the events of a piece of text; the possible beginning of a tag is kept for the next one."""
        if self._plain:
            yield StreamedText(text=text)
            return
        self._kept += text
        while self._kept:
            # Each turn of the loop consumes text or changes the state; when it does neither, the rest may be the
            # beginning of a tag, which only the next piece shows.
            rest = self._kept
            yield from self._inside() if self._closing else self._outside()
            if self._kept == rest or self._plain:
                return

    def end(self) -> Iterator[ModelEvent]:
        """Yield the event of the kept text, which is not a tag."""
        kept = self._kept
        self._kept = ""
        if kept:
            yield StreamedThinking(text=kept) if self._closing else StreamedText(text=kept)

    def _inside(self) -> Iterator[ModelEvent]:
        # Inside of a thought only its own closing tag counts: a model may write about other tags in its draft.
        thought, closed, rest = self._kept.partition(self._closing)
        if closed:
            self._closing = ""
            self._kept = rest
        else:
            thought, self._kept = _without_beginning(thought, (self._closing,))
        if thought:
            yield StreamedThinking(text=thought)

    def _outside(self) -> Iterator[ModelEvent]:
        # Before the first thought, a tag counts only at the very beginning, after white space that templates add.
        if not self.found:
            start = self._kept.lstrip()
            for opening in _CLOSING:
                if start.startswith(opening):
                    self._open(opening, start[len(opening) :])
                    return
            # A part of a tag may be all that arrived; every other text is an answer without thoughts.
            if not any(tag.startswith(start) for tag in _CLOSING):
                self._plain = True
                yield from self.end()
            return
        places = [(self._kept.find(tag), tag) for tag in _CLOSING if tag in self._kept]
        if places:
            place, opening = min(places)
            text = self._kept[:place]
            self._open(opening, self._kept[place + len(opening) :])
        else:
            text, self._kept = _without_beginning(self._kept, _CLOSING)
        if text:
            yield StreamedText(text=text)

    def _open(self, opening: str, rest: str) -> None:
        self.found = True
        self._closing = _CLOSING[opening]
        self._kept = rest


def split_events(splitter: ThoughtSplitter, event: ModelEvent, provider: str | None) -> Iterator[ModelEvent]:
    """Yield the events that an event of a model becomes when thoughts are separated from its text."""
    if isinstance(event, StreamedText):
        yield from splitter.feed(event.text)
    elif isinstance(event, Finished):
        yield from splitter.end()
        yield replace(event, message=without_inline_thoughts(event.message, provider))
    else:
        if not isinstance(event, StreamRestarted):
            yield from splitter.end()
        yield event


def without_inline_thoughts(message: AssistantMessage, provider: str | None) -> AssistantMessage:
    """Return a message whose thoughts are parts, and not in its text.

    `provider` is the server to which the text goes back as it came between the calls of one answer, as the templates
    of such models require; None if the thoughts go back to no server.
    """
    parts: list[AssistantPart] = []
    for part in message.parts:
        parts += _split(part, provider) if isinstance(part, TextPart) else (part,)
    unchanged = len(parts) == len(message.parts) and all(map(operator.is_, parts, message.parts))
    if unchanged:
        return message
    return AssistantMessage(parts=tuple(parts))


def _split(part: TextPart, provider: str | None) -> Iterator[AssistantPart]:
    thoughts, text = _separated(part.text)
    if text == part.text:
        yield part
        return
    if thoughts:
        raw = None if provider is None else {INLINE: part.text}
        yield ThinkingPart(text=thoughts, raw=raw, provider=None if raw is None else provider)
    if text:
        yield replace(part, text=text)


def _separated(text: str) -> tuple[str, str]:
    """Return the thoughts in a text, and the rest of it."""
    splitter = ThoughtSplitter()
    thoughts = ""
    answer = ""
    for event in (*splitter.feed(text), *splitter.end()):
        if isinstance(event, StreamedThinking):
            thoughts += event.text
        elif isinstance(event, StreamedText):
            answer += event.text
    if splitter.found:
        return thoughts.strip(), answer.lstrip()
    # The template wrote the opening tag into the prompt, so that the answer begins inside of the thought.
    for opening, closing in _TAGS:
        thought, closed, rest = text.partition(closing)
        if closed and opening not in thought and _is_alone(thought, rest):
            return thought.strip(), rest.lstrip()
    return "", text


def _is_alone(before: str, after: str) -> bool:
    """Return whether a closing tag between these texts is not part of a sentence about it."""
    if before.endswith(_QUOTES) and after.startswith(before[-1]):
        return False
    if not before or before.endswith("\n"):
        return True
    if after.lstrip(" ").startswith("\n"):
        return True
    return not (before[-1].isspace() or after[:1].isspace())


def _without_beginning(text: str, tags: Iterable[str]) -> tuple[str, str]:
    """Return a text without the beginning of a tag at its end, and that beginning."""
    # From the longest end to the shortest: `<thi` at the end of a text is kept whole, not only its last character.
    for length in range(min(len(text), _LONGEST - 1), 0, -1):
        end = text[-length:]
        if any(tag.startswith(end) for tag in tags):
            return text[:-length], end
    return text, ""
