"""The values that a server needs: given on the command line, or asked for on a terminal."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from toolweave.cli._exit_codes import CommandError, ExitCode
from toolweave.cli._render.text import clip, safe_text
from toolweave.cli._screen import complain, note
from toolweave.cli._serve.listen import named_variable

if TYPE_CHECKING:
    from toolweave.install import LaunchAnswers, LaunchQuestion

_TRIES = 5
_MAX_ANSWERS = 100
_WIDTH = 200
_HINT = "give it by --set NAME=VALUE, or a secret by --set-env NAME=VARIABLE"


def given_values(
    questions: Sequence[LaunchQuestion], values: Sequence[str], variables: Sequence[str]
) -> dict[str, list[str]]:
    """Return the values of `--set NAME=VALUE` and `--set-env NAME=VARIABLE` by name.

    Raises:
        CommandError: A word has no `=`, names no value of the server, or would put a secret on a command line.
    """
    given: dict[str, list[str]] = {}
    for word in values:
        question, value = _split(questions, word, "--set NAME=VALUE")
        if question.secret:
            raise CommandError(
                f"{question.name} is a secret: on a command line other programs and your shell's history have it",
                hint=f"--set-env {question.name}=VARIABLE takes it from a variable; in a terminal you are asked",
            )
        given.setdefault(question.name, []).append(value)
    for word in variables:
        question, variable = _split(questions, word, "--set-env NAME=VARIABLE")
        found = os.environ.get(variable)
        if not found:
            raise CommandError(f"--set-env {question.name}: {named_variable(variable)} is not set")
        given.setdefault(question.name, []).append(found)
    return given


def _split(questions: Sequence[LaunchQuestion], word: str, form: str) -> tuple[LaunchQuestion, str]:
    """Return the question that a word is an answer to, and the answer; a name may have an `=` in it."""
    for question in sorted(questions, key=lambda one: len(one.name), reverse=True):
        if word.startswith(f"{question.name}="):
            return question, word[len(question.name) + 1 :]
    name, equals, _ = word.partition("=")
    if not equals:
        raise CommandError(f"{form} is expected, got a word without =")
    names = ", ".join(question.name for question in questions) or "none"
    raise CommandError(f"{name!r} is not a value of this server; it has: {names}")


async def answered(
    questions: Sequence[LaunchQuestion], given: Mapping[str, Sequence[str]], *, deferred: bool, ask_all: bool
) -> LaunchAnswers:
    """Return the answers to all questions: those that were given, and those of a person, if one can be asked.

    Args:
        questions: The questions.
        given: The answers so far.
        deferred: Whether the client asks for secrets itself.
        ask_all: Whether to ask also for optional values and for those with a default.

    Raises:
        CommandError: A value is missing and no one can be asked, or the input ended.
        ConfigError: A value is wrong.
    """
    from toolweave.cli._stdin import can_ask  # imports are late: --help imports this module
    from toolweave.errors import ConfigError
    from toolweave.install import LaunchAnswers

    answers = {name: list(values) for name, values in given.items()}
    missing: list[str] = []
    for question in questions:
        is_asked_later = deferred and question.secret
        if is_asked_later or question.name in answers:
            continue
        is_needed = question.required and not question.defaults
        if can_ask():
            if ask_all or is_needed:
                answers[question.name] = await _ask(question)
        elif is_needed:
            missing.append(question.name)
    if missing:
        raise CommandError(f"a value is needed for {', '.join(missing)}, and no one can be asked", hint=_HINT)
    try:
        return LaunchAnswers(questions, answers, deferred=deferred)
    except ConfigError as error:
        raise CommandError(error.message, hint=_HINT) from None


async def _ask(question: LaunchQuestion) -> list[str]:
    from toolweave.cli._questions import ask_line  # late, as above
    from toolweave.errors import ConfigError

    if question.description:
        note(f"  {clip(safe_text(question.description), _WIDTH)}")
    if question.placeholder:
        note(f"  for example {clip(safe_text(question.placeholder), _WIDTH)}")
    answers: list[str] = []
    # bounded, as the input may be a program's
    for _ in range(_MAX_ANSWERS if question.repeated else _TRIES):
        line = await ask_line(_prompt(question, more=bool(answers)), hidden=question.secret)
        if line is None:
            raise CommandError(
                "the input ended before every value was given",
                code=ExitCode.TOOL_ERROR,
                hint="give it with --set NAME=VALUE",
            )
        # A secret may begin or end with a space.
        text = line if question.secret else line.strip()
        may_end = not question.required or len(answers) + len(question.defaults) > 0
        if may_end and not text:
            return answers
        try:
            question.checked(text)
        except ConfigError as error:
            complain(error)
            continue
        answers.append(text)
        if not question.repeated:
            return answers
    raise CommandError(f"no usable value for {question.name!r}", code=ExitCode.TOOL_ERROR)


def _prompt(question: LaunchQuestion, *, more: bool) -> str:
    facts: list[str] = []
    if question.choices:
        facts.append(clip(", ".join(question.choices), _WIDTH))
    elif question.format != "string":
        facts.append(clip(question.format, _WIDTH))
    if question.secret:
        facts.append("not shown as you type")
    about = f" ({'; '.join(facts)})" if facts else ""
    return f"{clip(safe_text(question.name), _WIDTH)}{about}{_effect_of_enter(question, more=more)}: "


def _effect_of_enter(question: LaunchQuestion, *, more: bool) -> str:
    """Return the text for an empty answer: the end of several, the default, or no value."""
    if more:
        return " [Enter: no more]"
    if question.defaults:
        return f" [{clip(', '.join(question.defaults), _WIDTH)}]"
    if question.required:
        return ""
    return " [Enter: left out]"
