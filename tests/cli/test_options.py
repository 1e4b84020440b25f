"""What may be typed for an option, whatever the command: declared in a signature, read from words, told in the help."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import pytest

from tests.cli.command import Done
from toolweave.cli._command import Command, CommandGroup, Option, Positional, Remainder
from toolweave.cli._commands import COMMANDS, load_command
from toolweave.cli._exit_codes import CommandError, ExitCode
from toolweave.cli._help import command_help
from toolweave.cli._parse import parse

Cli = Callable[..., Done]


class Colour(StrEnum):
    """An option with choices."""

    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """A group of options."""

    file: Annotated[tuple[Path, ...], Option("--file", "-f", metavar="FILE", help="A file.")] = ()
    seconds: Annotated[float | None, Option("--seconds", metavar="SECONDS", minimum=0.5, help="How long.")] = None
    loud: Annotated[bool, Option("--loud", "-l", help="Loudly.")] = False
    rest: Annotated[tuple[str, ...], Remainder("COMMAND ARGS...")] = ()


def paint(
    shared: Shared,
    wall: Annotated[str, Positional("WALL", help="Which wall.")],
    others: Annotated[tuple[str, ...], Positional("OTHER", help="And which others.")] = (),
    colour: Annotated[Colour, Option("--colour", "-c", help="In which colour.")] = Colour.RED,
    coats: Annotated[int, Option("--coats", minimum=1, help="How many coats.")] = 2,
    dry: Annotated[bool, Option("--dry", "-d", help="Show what would be painted.")] = False,
    secret: Annotated[str | None, Option("--secret", hidden=True)] = None,
) -> ExitCode:
    """Paint a wall.

    And others, when they are named.
    """
    painted.append({"shared": shared, "wall": wall, "others": others, "colour": colour, "coats": coats, "dry": dry})
    return ExitCode.OK


painted: list[dict[str, Any]] = []
PAINT = Command(paint, examples="\npaint north\npaint north south --dry\n")


def given(*words: str) -> dict[str, Any]:
    values = parse(PAINT, words)
    assert values is not None
    return {name: value for name, value in values.items() if value != DEFAULTS[name]}


DEFAULTS: dict[str, Any] = {
    "wall": "w",
    "others": (),
    "colour": Colour.RED,
    "coats": 2,
    "dry": False,
    "secret": None,
    "file": (),
    "seconds": None,
    "loud": False,
    "rest": (),
}


@pytest.mark.parametrize(
    "words, expected",
    [
        (["w"], {}),
        (["w", "--file", "a"], {"file": (Path("a"),)}),
        (["--file=a", "w", "-fb", "-f", "c"], {"file": (Path("a"), Path("b"), Path("c"))}),
        (["w", "a", "--loud", "b"], {"others": ("a", "b"), "loud": True}),
        (["-ld", "w"], {"loud": True, "dry": True}),
        (["-ldcblue", "w"], {"loud": True, "dry": True, "colour": Colour.BLUE}),
        (["w", "--colour", "blue", "--colour", "red"], {}),
        (["w", "--coats=3", "--seconds", "0.5"], {"coats": 3, "seconds": 0.5}),
        (["w", "--secret", "--dry"], {"secret": "--dry"}),
        (["w", "--secret="], {"secret": ""}),
        (["w", "-"], {"others": ("-",)}),
        (["w", "--", "npx", "--help", "--", "x"], {"rest": ("npx", "--help", "--", "x")}),
    ],
)
def test_words_become_values(words: list[str], expected: dict[str, Any]) -> None:
    assert given(*words) == expected


@pytest.mark.parametrize(
    "words, message",
    [
        ([], "Missing argument WALL"),
        (["w", "--lowd"], "unknown option --lowd"),
        (["w", "-x"], "unknown option -x"),
        (["w", "--file"], "--file needs a value"),
        (["w", "-f"], "-f needs a value"),
        (["w", "--loud=yes"], "--loud takes no value"),
        (["w", "--colour", "green"], "--colour: expected red or blue, got 'green'"),
        (["w", "--coats", "0"], "--coats: expected at least 1, got 0"),
        (["w", "--coats", "many"], "--coats: expected a whole number, got 'many'"),
        (["w", "--seconds", "nan"], "--seconds: expected at least 0.5, got nan"),
        (["w", "--seconds", "soon"], "--seconds: expected a number, got 'soon'"),
        (["w", "--"], "after -- the command of a stdio server is expected"),
    ],
)
def test_words_that_cannot_be_right_are_named(words: list[str], message: str) -> None:
    with pytest.raises(CommandError) as caught:
        parse(PAINT, words)

    assert caught.value.message == message
    assert caught.value.code is ExitCode.USAGE


def test_an_option_that_looks_alike_is_offered() -> None:
    with pytest.raises(CommandError) as caught:
        parse(PAINT, ["w", "--lowd"])

    assert caught.value.hint == "did you mean --loud?"


def test_a_command_without_a_server_takes_none_and_no_argument_too_many(cli: Cli) -> None:
    assert "no command is expected after --" in cli("init", "--", "npx").err
    assert "unexpected argument 'b.json'" in cli("init", "a.json", "b.json").err
    assert "init --help shows its options" in cli("init", "a.json", "b.json").err


def test_a_group_of_options_comes_as_one_value() -> None:
    values = parse(PAINT, ["north", "-l", "--", "run"])
    assert values is not None
    painted.clear()

    assert PAINT.run(values) is ExitCode.OK

    assert painted[0]["shared"] == Shared(loud=True, rest=("run",))
    assert painted[0]["wall"] == "north"


@pytest.mark.parametrize("words", [["-h"], ["--help"], ["w", "-lh"], ["--coats", "0", "--help"]])
def test_help_is_asked_for_wherever_it_stands(words: list[str]) -> None:
    assert parse(PAINT, words) is None


def test_the_help_tells_every_option_with_its_default_and_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "70")

    assert command_help(PAINT, "toolweave paint") == HELP.strip("\n")


HELP = """
Usage: toolweave paint [OPTIONS] WALL [OTHER]... [-- COMMAND
       ARGS...]

  Paint a wall.

  And others, when they are named.

Arguments:
  WALL   Which wall.
  OTHER  And which others.

Options:
  -c, --colour [red|blue]  In which colour.  [default: red]
  --coats NUMBER           How many coats.  [default: 2; at least 1]
  -d, --dry                Show what would be painted.
  -f, --file FILE          A file.
  --seconds SECONDS        How long.  [at least 0.5]
  -l, --loud               Loudly.
  -h, --help               Show this message and exit.

  Examples:
    paint north
    paint north south --dry
"""


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_what_each_ones_help_begins_with(name: str) -> None:
    command = load_command(name)

    assert command.help.splitlines()[0] == COMMANDS[name]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_every_command_has_a_help_and_a_name_of_its_own(name: str) -> None:
    command = load_command(name)
    for one in command.commands.values() if isinstance(command, CommandGroup) else [command]:
        shown = [option for _, option in one.options if not option.hidden]
        names = [name for _, option in one.options for name in option.names]

        assert all(option.help.endswith((".", "any.")) for option in shown)
        assert len(names) == len(set(names))
        assert not {"-h", "--help"} & set(names)


@pytest.mark.parametrize(
    "words, code, said",
    [
        (["runs"], 2, "Commands:\n  spawn"),
        (["runs", "--help"], 0, "Commands:\n  spawn"),
        (["runs", "shwo"], 2, "did you mean show?"),
        (["statsu"], 2, "did you mean status?"),
        (["--nonsense"], 2, "unknown option --nonsense"),
        (["components", "x"], 2, "toolweave components --help lists all"),
    ],
)
def test_a_wrong_name_of_a_command_is_wrong_usage(cli: Cli, words: list[str], code: int, said: str) -> None:
    done = cli(*words)

    assert done.code == code
    assert said in (done.err if code else done.out)


def mix(
    water: Annotated[bool, Option("--water", "-w", help="With water.", excludes={"--oil": "they part"})] = False,
    oil: Annotated[bool, Option("--oil", help="With oil.")] = False,
    parts: Annotated[
        int, Option("--parts", help="How many.", needs={"--water or --oil": "there is nothing to measure"})
    ] = 1,
) -> ExitCode:
    """Mix a colour."""
    return ExitCode.OK


MIX = Command(mix, examples="mix")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--water", "--oil"], "--water does not go with --oil: they part"),
        (["--oil", "-w"], "--water does not go with --oil: they part"),
        (["--parts", "2"], "--parts goes with --water or --oil: there is nothing to measure"),
    ],
)
def test_options_that_contradict_each_other_are_refused_as_they_declare_it(words: list[str], message: str) -> None:
    with pytest.raises(CommandError) as refused:
        parse(MIX, words)
    assert str(refused.value) == message


@pytest.mark.parametrize("words", [["--water"], ["--parts", "2", "--oil"], ["--parts", "1"]])
def test_options_that_fit_together_are_accepted(words: list[str]) -> None:
    assert parse(MIX, words) is not None


def test_the_help_names_the_options_that_an_option_needs_and_excludes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    shown = command_help(MIX, "mix")

    assert "With water.  [not with --oil]" in shown
    assert "How many.  [default: 1; with --water or --oil]" in shown


@pytest.mark.parametrize("name", COMMANDS)
def test_an_option_names_only_options_of_its_command(name: str) -> None:
    found = load_command(name)
    for command in found.commands.values() if isinstance(found, CommandGroup) else (found,):
        known = {name for _, option in command.options for name in option.names}
        for _, option in command.options:
            named = {one for names in (*option.needs, *option.excludes) for one in names.split(" or ")}
            assert named <= known
