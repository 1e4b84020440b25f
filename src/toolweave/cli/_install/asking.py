"""The values that a server needs: given on the command line, or asked for on a terminal."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from toolweave.cli._exit_codes import CommandError, ExitCode
from toolweave.cli._render.text import clip, safe_text
from toolweave.cli._screen import complain, note

if TYPE_CHECKING:
    from toolweave.install import LaunchAnswers, LaunchQuestion

_TRIES = 5
_WIDTH = 200
_HINT = "give it by --set NAME=VALUE, or a secret by --set-env NAME=VARIABLE"


def given_values(
    questions: Sequence[LaunchQuestion], values: Sequence[str], variables: Sequence[str]
) -> dict[str, list[str]]:
    """Return the values of `--set NAME=VALUE` and `--set-env NAME=VARIABLE` by name.

    Raises:
        CommandError: A word has no `=`, names nothing that is asked for, or would put a secret on a command line.
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
            raise CommandError(f"--set-env {question.name}: the environment variable {variable!r} is not set")
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
    names = ", ".join(one.name for one in questions) or "nothing"
    raise CommandError(f"{name!r} is nothing that this server asks for; there is {names}")


async def answered(
    questions: Sequence[LaunchQuestion], given: Mapping[str, Sequence[str]], *, deferred: bool, ask_all: bool
) -> LaunchAnswers:
    """Return the answers to all questions: those that were given, and those of a person, if one can be asked.

    Args:
        questions: The questions.
        given: The answers so far.
        deferred: Whether the client asks for secrets itself.
        ask_all: Whether to ask for what has a default or can be left out, too.

    Raises:
        CommandError: A value is missing and no one can be asked, or the input ended.
        ConfigError: A value is wrong.
    """
    from toolweave.cli._stdin import can_ask  # imports are late: --help imports this module
    from toolweave.errors import ConfigError
    from toolweave.install import LaunchAnswers

    answers = {name: list(values) for name, values in given.items()}
    open_ones = [one for one in questions if one.name not in answers and not (deferred and one.secret)]
    if can_ask():
        for question in open_ones:
            if ask_all or (question.required and not question.defaults):
                answers[question.name] = await _ask(question)
    elif any(one.required and not one.defaults for one in open_ones):
        missing = [one.name for one in open_ones if one.required and not one.defaults]
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
    for _ in range(_TRIES if not question.repeated else 100):
        line = await ask_line(_prompt(question, more=bool(answers)), hidden=question.secret)
        if line is None:
            raise CommandError("the input ended before every value was given", code=ExitCode.TOOL_ERROR)
        text = line if question.secret else line.strip()
        if not text and (answers or question.defaults or not question.required):
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
    kind = ", ".join(question.choices) or ("" if question.format == "string" else question.format)
    hidden = "not shown as you type" if question.secret else ""
    about = "; ".join(part for part in (clip(kind, _WIDTH), hidden) if part)
    default = ", ".join(question.defaults)
    if more:
        rest = " [Enter: no more]"
    elif default:
        rest = f" [{clip(default, _WIDTH)}]"
    else:
        rest = "" if question.required else " [Enter: left out]"
    return f"{clip(safe_text(question.name), _WIDTH)}{f' ({about})' if about else ''}{rest}: "
