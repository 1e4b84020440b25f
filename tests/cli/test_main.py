"""The command as a whole: help, version, completion, broken pipes, exit codes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest

from tests.cli.command import COMMAND, Done, toolweave, write_config
from tests.programs import ran
from tests.servers.fixtures import echo_command
from toolweave.cli._exit_codes import CommandError, ExitCode, exit_code_of, is_expected
from toolweave.errors import (
    AuthRequiredError,
    ConfigError,
    ConnectError,
    ConnectionClosedError,
    ConnectionLostError,
    DuplicateToolError,
    ErrorKind,
    ProtocolError,
    RequestTimeoutError,
    SchemaError,
    ServerError,
    ToolError,
    ToolweaveError,
)

Cli = Callable[..., Done]

VERBS = [
    *("tools", "call", "resources", "prompts", "status", "doctor", "chat", "serve", "worker", "init", "add", "demo"),
    *("search", "install", "explain"),
]


def test_help_names_every_verb_in_full(cli: Cli) -> None:
    done = cli("--help")

    assert done.code == 0
    listed = done.out.split("Commands:\n")[1].splitlines()
    groups = ["auth", "components", "config", "gateway", "pin", "runs", "sessions", "users"]
    assert sorted(line.split()[0] for line in listed) == sorted([*VERBS, *groups])
    assert not any(line.endswith("...") for line in listed)


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_each_verb_has_examples(cli: Cli, verb: str) -> None:
    done = cli(verb, "--help")

    assert done.code == 0
    assert f"  toolweave {verb}" in done.out.split("Examples:")[1]


def test_the_version_is_the_packages(cli: Cli) -> None:
    from importlib.metadata import version

    assert cli("--version").out == f"toolweave {version('toolweave')}\n"


@pytest.mark.parametrize("args", [[], ["tool"], ["--nonsense"], ["call"]])
def test_wrong_usage_is_exit_code_2(cli: Cli, args: list[str]) -> None:
    assert cli(*args).code == 2


LOADED = """
import sys
before = set(sys.modules)
from toolweave.cli.main import main
code = main(sys.argv[1:])
names = sorted(set(sys.modules) - before)
import json
print(json.dumps([code, names]), file=sys.stderr)
"""
COMPLETING = {"_TOOLWEAVE_COMPLETE": "complete_bash", "COMP_WORDS": "toolweave tools --serv", "COMP_CWORD": "2"}


def loaded(*args: str, env: Mapping[str, str] | None = None) -> list[str]:
    """Return the modules that a command line imports."""
    done = ran([sys.executable, "-c", LOADED, *args], env={**os.environ, **(env or {})}, check=True)
    code, names = json.loads(done.stderr.splitlines()[-1])
    assert code == 0, done.stderr
    return names


def packages(names: Iterable[str]) -> set[str]:
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("words", [["--version"], ["--help"]])
def test_version_and_help_import_a_dozen_modules_and_nothing_foreign(words: list[str]) -> None:
    names = loaded(*words)

    assert len([name for name in names if name.startswith("toolweave")]) <= 9, names
    assert len(names) <= 40, names
    assert packages(names).isdisjoint({"asyncio", "dataclasses", "inspect", "json", "logging", "msgspec", "rich"})


@pytest.mark.parametrize("words, env", [(["tools", "--help"], {}), ([], COMPLETING)], ids=["help", "tab"])
def test_the_help_of_a_command_and_a_shells_tab_import_neither_rich_nor_asyncio(
    words: list[str], env: dict[str, str]
) -> None:
    names = loaded(*words, env=env)

    assert packages(names).isdisjoint({"anyio", "asyncio", "logging", "msgspec", "rich", "yaml"})
    assert not [name for name in names if re.match(r"toolweave\.(config|connect|hub|tools|schema|protocol)\b", name)]


@pytest.mark.slow
def test_a_reader_that_leaves_early_is_no_error(folder: Path) -> None:
    config = write_config(folder, {"many": echo_command("--tools", "3000", "--tool-bytes", "1000")})

    for more in (["--json"], []):
        with subprocess.Popen(
            [*COMMAND, "tools", "--config", str(config), *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.read(10)
            process.stdout.close()

            assert process.wait(60) == 0
            assert process.stderr.read() == b""


@pytest.mark.slow
def test_the_exit_code_survives_a_reader_that_left(folder: Path) -> None:
    config = write_config(folder, {"echo": echo_command()})
    command = [*COMMAND, "call", "--config", str(config), "echo_fail"]

    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, timeout=60, check=False)
    os.close(write)

    assert done.returncode == 1
    assert done.stderr == b"error: the tool answered with an error\n"


def test_help_to_a_reader_that_left_is_quiet() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([*COMMAND, "--help"], stdout=write, stderr=subprocess.PIPE, timeout=60, check=False)
    os.close(write)

    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr


@pytest.mark.slow
def test_an_encoding_without_the_character_shows_its_escape(folder: Path) -> None:
    config = write_config(folder, {"echo": echo_command()})
    call = ["call", "--config", config, "echo_echo", "text=日"]

    assert toolweave(*call, env={"PYTHONIOENCODING": "ascii"}).out == "\\u65e5\n"
    assert toolweave(*call, env={"PYTHONIOENCODING": "utf-8"}).out == "日\n"


@pytest.mark.slow
def test_closed_standard_streams_do_no_harm(folder: Path) -> None:
    config = write_config(folder, {"echo": echo_command()})
    command = " ".join([*COMMAND, "call", "--config", str(config), "echo_add"])

    done = subprocess.run(["sh", "-c", f"{command} <&- >&-"], stderr=subprocess.PIPE, timeout=60, check=False)

    assert done.returncode == 1
    assert b"needs a, b" in done.stderr
    assert b"Traceback" not in done.stderr


def complete(words: str, folder: Path) -> list[str]:
    env = {"_TOOLWEAVE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
    return toolweave(env=env, cwd=folder).out.split()


@pytest.mark.slow
def test_a_shell_completes_servers_and_the_tools_that_were_seen(cli: Cli, folder: Path) -> None:
    write_config(folder, {"echo": echo_command(), "else": echo_command()})

    assert complete("toolweave tools --server e", folder) == ["echo", "else"]
    assert complete("toolweave call echo_a", folder) == []

    assert cli("tools").code == 0
    assert sorted(complete("toolweave call echo_a", folder)) == ["echo_add", "echo_args", "echo_audio"]


OFFERED = {
    "bash": "status\n",
    "zsh": "status:Show which servers answer, and how fast.\n",
    "fish": "status\tShow which servers answer, and how fast.\n",
    "powershell": "status:::Show which servers answer, and how fast.\n",
    "tcsh": "",
}


@pytest.mark.parametrize("shell", OFFERED)
def test_each_shell_gets_words_as_its_script_reads_them(shell: str, folder: Path) -> None:
    env = {"_TOOLWEAVE_COMPLETE": f"complete_{shell}", "COMP_WORDS": "toolweave stat"}

    assert toolweave(env=env, cwd=folder).out == OFFERED[shell]


@pytest.mark.slow
@pytest.mark.parametrize(
    "words, offered",
    [
        ("toolweave --vers", ["--version"]),
        ("toolweave ru", ["runs"]),
        ("toolweave runs s", ["spawn", "show"]),
        ("toolweave runs list --st", ["--status", "--store"]),
        ("toolweave runs list --status ", ["all", "active", "interrupted", "waiting"]),
        ("toolweave runs list --status=act", ["active"]),
        ("toolweave runs list --status = act", ["active"]),
        ("toolweave runs gone --st", []),
        ("toolweave gone --st", []),
        ("toolweave tools --bogus x", []),
        ("toolweave tools --he", ["--header", "--help"]),
        ("toolweave tools -- npx --", []),
        ("toolweave init --from 'cur", ["cursor"]),
        ("toolweave add mcp-s", ["mcp-server"]),
        ("toolweave add mcp-server mcp-s", []),
        ("toolweave chat --run", []),
        ("toolweave serve --sk", ["--skills"]),
        ("toolweave serve -c mcp.json --sk", []),
        ("toolweave gateway --red", ["--redis-env"]),
        ("toolweave gateway --config mcp.json --red", ["--redis-env"]),
        ("toolweave gateway --install curs", ["cursor"]),
        ("toolweave gateway st", ["status"]),
        ("toolweave gateway status --red", []),
        ("toolweave pin --upd", ["--update"]),
        ("toolweave pin che", ["check"]),
        ("toolweave runs --sto", []),
    ],
)
def test_a_shell_completes_commands_options_and_their_values(words: str, offered: list[str], folder: Path) -> None:
    assert complete(words, folder) == offered


def in_shell(shell: str, program: str) -> str:
    """Run a program of a shell that finds the command; skips the test where there is no such shell."""
    if shutil.which(shell) is None:
        pytest.skip(f"platform: {shell} is not installed")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = ran([shell, "-c", program], env={**os.environ, "PATH": path, "TERM": "dumb"}, check=True)
    assert done.stderr == ""
    return done.stdout


def in_bash(program: str) -> str:
    """Run a program of bash that finds the command."""
    return in_shell("bash", program)


@pytest.mark.slow
def test_bash_completes_by_the_script_that_is_shown(folder: Path) -> None:
    program = (
        'eval "$(toolweave --show-completion)"\n'
        "COMP_WORDS=(toolweave stat)\n"
        "COMP_CWORD=1\n"
        "_toolweave_completion toolweave\n"
        'echo "${COMPREPLY[@]}"\n'
    )

    assert in_bash(program) == "status\n"


COMPLETED = {
    "toolweave stat": "toolweave status",
    "toolweave runs list --status act": "toolweave runs list --status active",
    "toolweave runs list --status=act": "toolweave runs list --status=active",
    "toolweave runs list --stat": "toolweave runs list --status",
    "toolweave add mcp-s": "toolweave add mcp-server",
    "toolweave call ech": "toolweave call echo_add",
    "toolweave call echo_add fir": "toolweave call echo_add first=",
    "toolweave serve ./on": "toolweave serve ./only.py",
}
"""Command lines, and what the Tab key makes of each."""


@pytest.fixture
def to_complete(folder: Path, home: Path) -> None:
    cache = home / ".cache" / "toolweave" / "completion.json"
    cache.parent.mkdir(parents=True)
    cache.write_text(json.dumps({"echo": {"echo_add": ["first", "second"]}}))
    (folder / "only.py").touch()


@pytest.mark.slow
@pytest.mark.usefixtures("to_complete")
@pytest.mark.parametrize("line", COMPLETED)
def test_fish_completes_by_the_script_that_is_shown(line: str) -> None:
    shown = in_shell("fish", f"toolweave --show-completion | source\ncomplete -C {line!r}\n")

    (offered,) = shown.splitlines()
    assert line.rpartition(" ")[0] + " " + offered.partition("\t")[0] == COMPLETED[line]


# zsh completes only where it has a terminal, which its module zpty makes. The command becomes a function that prints
# its line, so that the completed line can be read without the escape sequences of the editor.
ZSH = """
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'autoload -Uz compinit; compinit -u -D; eval "$(toolweave --show-completion)"'
zpty -w shell 'toolweave() { print -r -- "BEG""IN toolweave $* EN""D" }; print -r -- rea""dy'
zpty -r shell seen '*ready*'
zpty -w -n shell $'LINE\\t\\n'
zpty -r shell seen '*BEGIN*END*'
print -r -- ${${seen##*BEGIN }%% END*}
"""


@pytest.mark.slow
@pytest.mark.usefixtures("to_complete")
@pytest.mark.parametrize("line", COMPLETED)
def test_zsh_completes_by_the_script_that_is_shown(line: str) -> None:
    assert in_shell("zsh", ZSH.replace("LINE", line)).strip() == COMPLETED[line]


@pytest.mark.slow
def test_completion_is_installed_once(home: Path, folder: Path) -> None:
    said = in_bash("toolweave --install-completion\ntoolweave --install-completion\ntrue\n")

    script = home / ".bash_completions" / "toolweave.sh"
    assert said.count(f"bash completion is in {script}") == 2
    assert (home / ".bashrc").read_text() == f"source '{script}'\n"
    assert in_bash(f"source '{script}'\ncomplete -p toolweave").strip().endswith("toolweave")


@pytest.mark.slow
@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"a": 5, "b": ["x y", "; rm -rf", 5]}', '{"a": {"x y": ["b"]}, "b": 5}', "\udcff"]
)
def test_a_broken_cache_or_config_completes_nothing_and_says_nothing(folder: Path, home: Path, content: str) -> None:
    cache = home / ".cache" / "toolweave" / "completion.json"
    cache.parent.mkdir(parents=True)
    cache.write_bytes(content.encode("utf-8", "surrogateescape"))
    (folder / "mcp.json").write_text("{")

    env = {"_TOOLWEAVE_COMPLETE": "complete_bash", "COMP_WORDS": "toolweave call ", "COMP_CWORD": "2"}
    done = toolweave(env=env, cwd=folder)
    assert done.out.split() == []
    assert done.err == ""
    assert complete("toolweave tools --server x", folder) == []


@pytest.mark.slow
def test_a_shell_completes_the_arguments_of_a_tool_that_was_seen(cli: Cli, folder: Path) -> None:
    write_config(folder, {"numbers": [sys.executable, "-m", "toolweave.cli.demo.numbers"]})
    assert complete("toolweave call numbers_divide ", folder) == []

    assert cli("tools").code == 0
    for name in ("numbers_divide", "numbers:divide", "numbers/divide", "divide"):
        assert complete(f"toolweave call {name} ", folder) == ["value=", "by="], name
    assert complete("toolweave call numbers_divide va", folder) == ["value="]
    assert complete("toolweave call numbers_divide value=1 ", folder) == ["by="]
    assert complete("toolweave call numbers_divide value:=1 ", folder) == ["by="]
    assert complete("toolweave call --json numbers_divide value = 1 b", folder) == ["by="]
    assert complete("toolweave call numbers_divide value = ", folder) == []  # as bash takes it apart
    assert complete("toolweave call numbers_divide value=", folder) == []
    assert complete("toolweave call no_such_tool ", folder) == []


@pytest.mark.slow
def test_bash_puts_no_space_behind_the_name_of_an_argument(cli: Cli, folder: Path) -> None:
    write_config(folder, {"numbers": [sys.executable, "-m", "toolweave.cli.demo.numbers"]})
    assert cli("tools").code == 0
    program = (
        'eval "$(toolweave --show-completion)"\n'
        "compopt() { echo compopt $@; }\n"
        "COMP_WORDS=(toolweave call numbers_add va)\n"
        "COMP_CWORD=3\n"
        "_toolweave_completion toolweave\n"
        'echo "${COMPREPLY[@]}"\n'
    )

    assert in_bash(program) == "compopt -o nospace\nvalues=\n"


@pytest.mark.slow
def test_a_cache_of_an_earlier_version_completes_tools(folder: Path, home: Path) -> None:
    cache = home / ".cache" / "toolweave" / "completion.json"
    cache.parent.mkdir(parents=True)
    cache.write_text('{"notes": ["notes_add"]}')

    assert complete("toolweave call no", folder) == ["notes_add"]
    assert complete("toolweave call notes_add ", folder) == []


def test_only_plain_names_are_remembered_for_a_shell(cli: Cli, folder: Path, home: Path) -> None:
    from tests.servers.fixtures import fault_command

    write_config(folder, {"odd": fault_command("odd_names"), "evil": fault_command("ansi_and_bidi")})

    assert cli("tools").code == 0
    remembered = json.loads((home / ".cache" / "toolweave" / "completion.json").read_text())
    assert remembered["odd"]
    assert all(name.isascii() and " " not in name for names in remembered.values() for name in names)


def test_a_cache_that_cannot_be_written_is_no_error(cli: Cli, folder: Path, home: Path) -> None:
    (home / ".cache").write_text("a file where the folder should be")
    write_config(folder, {"echo": echo_command()})

    assert cli("tools").code == 0


KINDS = {
    ErrorKind.INVALID_INPUT: 1,
    ErrorKind.INVALID_OUTPUT: 1,
    ErrorKind.EXECUTION_FAILED: 1,
    ErrorKind.PROTOCOL: 1,
    ErrorKind.TOO_LARGE: 1,
    ErrorKind.CANCELLED: 1,
    ErrorKind.DENIED: 1,
    ErrorKind.NOT_FOUND: 2,
    ErrorKind.TIMEOUT: 3,
    ErrorKind.NOT_SENT: 3,
    ErrorKind.OUTCOME_UNKNOWN: 3,
    ErrorKind.CLOSED: 3,
    ErrorKind.AUTH_REQUIRED: 3,
}


@pytest.mark.parametrize("kind", list(ErrorKind))
def test_every_kind_of_tool_error_has_an_exit_code(kind: ErrorKind) -> None:
    assert exit_code_of(ToolError("x", kind=kind)) == KINDS[kind]


ERRORS: list[tuple[BaseException, int]] = [
    (ConfigError("x"), 2),
    (SchemaError("x"), 1),
    (DuplicateToolError("x"), 1),
    (ServerError("x", server="s"), 3),
    (ConnectError("x", server="s"), 3),
    (AuthRequiredError("x", server="s"), 3),
    (ConnectionClosedError("x", server="s"), 3),
    (ConnectionLostError("x", server="s", sent=True), 3),
    (RequestTimeoutError("x", server="s", seconds=1), 3),
    (ProtocolError("x", server="s", code=-1), 1),
    (ToolweaveError("x"), 1),
    (TimeoutError(), 3),
    (FileNotFoundError(), 2),
    (KeyboardInterrupt(), 130),
    (CommandError("x"), 2),
    (CommandError("x", code=ExitCode.TOOL_ERROR), 1),
    (ZeroDivisionError(), 1),
]


@pytest.mark.parametrize("error, code", ERRORS, ids=lambda value: type(value).__name__)
def test_every_error_of_the_library_has_an_exit_code(error: BaseException, code: int) -> None:
    assert exit_code_of(error) == code
    assert is_expected(error) is isinstance(error, (ToolweaveError, CommandError, OSError))
