"""`toolweave chat`: one message or a conversation, with the servers' tools, on a terminal and without one."""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Callable, Generator, Mapping
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from tests.cli import odd_server
from tests.cli.command import COMMAND, Done, on_terminal, toolweave, write_config
from tests.cli.tmux import Tmux, open_tmux
from tests.models.fake_openai import KEY, call, chat_turn, fake_openai, said
from tests.servers.fixtures import echo_command, fault_command

TEST_SECONDS = 120

pytestmark = pytest.mark.slow

Cli = Callable[..., Done]
OFFLINE = ("chat", "--model", "command")
ADD = '/call numbers_add {"values": [40, 2]}'
NOTE = '/call notes_add_note {"text": "milk"}'
PROMPT = r"(^|\n)> $"


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "TOOLWEAVE_MODEL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def config(folder: Path) -> Path:
    """Two servers; a tool of the one destroys nothing, one of the other says nothing about that."""
    return write_config(
        folder, {name: [sys.executable, "-m", f"toolweave.cli.demo.{name}"] for name in ("notes", "numbers")}
    )


# one message


def test_one_message_is_answered_on_standard_output_and_calls_are_told_beside_it(folder: Path, config: Path) -> None:
    done = toolweave(*OFFLINE, "-m", ADD, cwd=folder)

    assert done.code == 0
    assert json.loads(done.out) == {"sum": 42}
    assert '✓ numbers_add {"values": [40, 2]}' in done.err


def test_what_a_result_has_for_the_user_alone_is_shown_beside_the_call(folder: Path) -> None:
    block = {"type": "text", "text": "\x1b]0;x\x07a fine table", "annotations": {"audience": ["user"]}}
    tool = {"name": "report", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
    script = {"tools": [tool], "calls": {"report": {"content": [block, {"type": "text", "text": "ok"}]}}}
    write_config(folder, {"odd": [sys.executable, odd_server.__file__, json.dumps(script)]})

    done = toolweave(*OFFLINE, "-m", "/call odd_report {}", cwd=folder)

    assert (done.code, done.out) == (0, "ok\n")
    assert "a fine table" in done.err
    assert "\x1b]" not in done.err


def test_what_is_piped_in_is_one_message(folder: Path, config: Path) -> None:
    done = toolweave(*OFFLINE, cwd=folder, stdin=ADD)

    assert (done.code, json.loads(done.out)) == (0, {"sum": 42})


def test_the_answer_as_json(folder: Path, config: Path) -> None:
    done = toolweave(*OFFLINE, "-m", ADD, "--json", cwd=folder)

    assert done.code == 0
    assert json.loads(done.json["text"]) == {"sum": 42}
    assert done.json["status"] == "completed"
    assert done.json["steps"] == 2


def test_without_a_model_it_says_what_to_do(cli: Cli, folder: Path, config: Path) -> None:
    done = cli("chat", "-m", "hello")

    assert done.code == 2
    assert "no model is named" in done.err
    assert "--model command" in done.err


def test_the_model_is_the_environments_and_the_option_wins(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLWEAVE_MODEL", "test:from the environment")

    assert cli("chat", "-m", "hello").out == "from the environment\n"
    assert cli("chat", "-m", "hello", "--model", "test:from the option").out == "from the option\n"


@pytest.mark.parametrize("model, said", [("nonsense", "model"), ("openai:x", "set OPENAI_API_KEY")])
def test_a_wrong_model_is_wrong_usage(cli: Cli, folder: Path, model: str, said: str) -> None:
    done = cli("chat", "-m", "hello", "--model", model)

    assert done.code == 2
    assert said in done.err


def test_a_model_that_cannot_be_reached_is_told_in_one_line(cli: Cli, folder: Path) -> None:
    done = cli("chat", "-m", "hello", "--model", "http://127.0.0.1:9/v1#none")

    assert done.code == 1
    assert done.out == ""
    assert "127.0.0.1:9" in done.err
    assert "Traceback" not in done.err


def test_without_servers_it_still_answers(cli: Cli, folder: Path) -> None:
    done = cli("chat", "-m", "hello", "--model", "test:hi")

    assert (done.code, done.out) == (0, "hi\n")
    assert "no servers" in done.err


def test_a_server_that_fails_costs_the_others_nothing(folder: Path, config: Path) -> None:
    entries = json.loads(config.read_text())
    entries["mcpServers"]["broken"] = {"command": "toolweave-no-such-program"}
    config.write_text(json.dumps(entries))

    done = toolweave(*OFFLINE, "-m", ADD, "--trust", cwd=folder)

    assert done.code == 0
    assert "failed: server 'broken'" in done.err


def test_an_empty_message_is_wrong_usage(folder: Path) -> None:
    for words in (["-m", " "], ["--json"], []):
        done = toolweave(*OFFLINE, *words, cwd=folder)
        assert done.code == 2
        assert "the message is empty" in done.err


def test_a_call_that_a_person_has_to_allow_is_not_made_where_there_is_none(folder: Path, config: Path) -> None:
    refused = toolweave(*OFFLINE, "-m", NOTE, "--confirm", "always", cwd=folder)
    allowed = toolweave(*OFFLINE, "-m", NOTE, "--confirm", "never", cwd=folder)

    assert "nobody can be asked" in refused.out
    assert "✓ notes_add_note" in allowed.err


def test_a_conversation_goes_on_under_its_name(cli: Cli, folder: Path) -> None:
    store = folder / "store.db"
    for text in ("one", "two"):
        assert cli("chat", "--model", f"test:{text}", "-m", text, "--resume", "mine", "--store", store).code == 0

    with on_terminal(*OFFLINE, "--store", store, "--resume", "mine", cwd=folder) as terminal:
        terminal.wait_for(PROMPT)
        terminal.type("/resume\n")
        terminal.wait_for(r"mine +4 +one[\s\S]*> $")
        terminal.type("\x04")
        assert terminal.end() == 0


async def test_a_models_calls_are_told_and_its_answer_is_printed(folder: Path, config: Path) -> None:
    turns = (
        chat_turn(
            call(0, "a", "numbers_add", '{"values": [40, 2]}'),
            call(1, "b", "numbers_divide", '{"value": 1, "by": 0}'),
            finish="tool_calls",
        ),
        said("It is ", "42."),
    )
    async with fake_openai(*turns) as fake:
        env = {"OPENAI_BASE_URL": fake.url, "OPENAI_API_KEY": KEY, "TOOLWEAVE_MODEL": "openai-chat:gpt-5.1"}
        chat = functools.partial(toolweave, "chat", "-m", "Add them.", "--confirm", "never", cwd=folder, env=env)
        done = await anyio.to_thread.run_sync(chat)

    assert (done.code, done.out) == (0, "It is 42.\n")
    assert '✓ numbers_add {"values": [40, 2]}' in done.err
    assert '✗ numbers_divide {"value": 1, "by": 0}: ' in done.err
    assert KEY not in done.err


# a conversation on a terminal


def test_a_conversation_answers_line_by_line_until_the_input_ends(folder: Path, config: Path) -> None:
    with on_terminal(*OFFLINE, cwd=folder) as terminal:
        terminal.wait_for(PROMPT)
        terminal.type(f"{ADD}\n")
        terminal.wait_for(r'✓ numbers_add .*s\r?\n\{"sum": 42\}\r?\n> $')
        terminal.type("/tools\n")
        terminal.wait_for(r"notes_read_note +Read one note[\s\S]*> $")
        terminal.type("/servers\n")
        terminal.wait_for(r"numbers +ready +3[\s\S]*> $")
        terminal.type("/help\n")
        terminal.wait_for(r"/call TOOL \{JSON\}[\s\S]*> $")
        terminal.type("/quit\n")
        assert terminal.end() == 0


def test_a_running_call_shows_its_progress(folder: Path, config: Path) -> None:
    with on_terminal(*OFFLINE, cwd=folder) as terminal:
        terminal.wait_for(PROMPT)
        terminal.type('/call numbers_primes {"limit": 3000}\n')
        terminal.wait_for(r"numbers_primes .*━")
        terminal.wait_for(r"✓ numbers_primes[\s\S]*\n> $")
        terminal.type("\x04")
        assert terminal.end() == 0


def test_a_call_is_made_only_when_it_is_allowed(folder: Path, config: Path) -> None:
    with on_terminal(*OFFLINE, "--confirm", "always", cwd=folder) as terminal:
        terminal.wait_for(PROMPT)
        terminal.type(f"{NOTE}\n")
        terminal.wait_for(r"run notes_add_note .*milk.*: $")
        terminal.type("n\n")
        terminal.wait_for(r"✗ notes_add_note .*the user said no[\s\S]*\n> $")
        terminal.type(f"{NOTE}\n")
        terminal.wait_for(r"the user said no[\s\S]*run notes_add_note .*: $")
        terminal.type("a\n")
        terminal.wait_for(r"✓ notes_add_note[\s\S]*\n> $")
        terminal.type(f"{NOTE}\n")
        terminal.wait_for(r"(✓ notes_add_note[\s\S]*){2}\n> $")
        assert terminal.text.count("run notes_add_note") == 2
        terminal.type("\x04")
        assert terminal.end() == 0


def test_the_interrupt_key_stops_an_answer_and_not_the_conversation(folder: Path) -> None:
    config = write_config(folder, {"echo": echo_command()})
    with on_terminal(*OFFLINE, "--confirm", "never", "--config", config, cwd=folder) as terminal:
        terminal.wait_for(PROMPT)
        terminal.type('/call echo_slow {"seconds": 600, "steps": 6000}\n')
        terminal.wait_for(r"echo_slow .*━")
        terminal.type("\x03")
        terminal.wait_for(r"stopped\r?\n> $")
        terminal.type('/call echo_add {"a": 40, "b": 2}\n')
        terminal.wait_for(r"42[\s\S]*\n> $")
        terminal.type("\x03")
        assert terminal.end() == 130


def test_a_conversation_is_kept_under_a_name_and_found_again(folder: Path) -> None:
    words = ("chat", "--model", "test:aye", "--store", folder / "store.db")
    with on_terminal(*words, cwd=folder) as terminal:
        terminal.wait_for(PROMPT)
        terminal.type("/save early\n")
        terminal.wait_for(r"there is nothing to keep yet[\s\S]*> $")
        terminal.type("captain?\n")
        terminal.wait_for(r"aye\r?\n> $")
        terminal.type("/save ship\n")
        terminal.wait_for(r"kept as ship[\s\S]*> $")
        terminal.type("/new\n")
        terminal.wait_for(r"a new conversation\r?\n> $")
        terminal.type("/resume nothing\n")
        terminal.wait_for(r"unknown conversation 'nothing'[\s\S]*> $")
        terminal.type("\x04")
        assert terminal.end() == 0

    with on_terminal(*words, cwd=folder) as terminal:
        terminal.wait_for(PROMPT)
        terminal.type("/resume ship\n")
        terminal.wait_for(r"continuing ship; it ended with:\r?\naye\r?\n> $")
        terminal.type("/nonsense\n")
        terminal.wait_for(r"unknown command '/nonsense'[\s\S]*> $")
        terminal.type("\x04")
        assert terminal.end() == 0


def test_without_a_model_the_offline_one_is_offered(folder: Path, config: Path) -> None:
    with on_terminal("chat", cwd=folder) as terminal:
        terminal.wait_for(r"no model: TOOLWEAVE_MODEL is not set[\s\S]*\[Y/n\] $")
        terminal.type("\n")
        terminal.wait_for(PROMPT)
        terminal.type("\x04")
        assert terminal.end() == 0

    with on_terminal("chat", cwd=folder) as terminal:
        terminal.wait_for(r"\[Y/n\] $")
        terminal.type("n\n")
        assert terminal.end() == 2


def test_nothing_a_server_says_moves_the_cursor(folder: Path) -> None:
    config = write_config(folder, {"evil": fault_command("ansi_and_bidi")})
    with on_terminal(*OFFLINE, "--confirm", "always", "--config", config, cwd=folder, columns=300) as terminal:
        terminal.wait_for(PROMPT)
        terminal.type("/tools\n")
        terminal.wait_for(r"evil_echo[\s\S]*> $")
        terminal.type('/call evil_echo {"text": "\\u001b]0;x\\u0007\\u202e"}\n')
        terminal.wait_for(r"run evil_echo .*: $")
        terminal.type("y\n")
        terminal.wait_for(r"evil_echo .*s\r?\n[\s\S]*\n> $")
        terminal.type("\x04")
        terminal.end()

    assert "\u202e" not in terminal.raw
    assert "\x1b]" not in terminal.raw
    assert "\x1b" not in terminal.text


CHANGING = """
import json, sys, threading, time
from pathlib import Path

hidden = chr(0x200B)
tools = [{"name": "plain", "inputSchema": {"type": "object"}}]

def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

def change():
    while not Path("go").exists():
        time.sleep(0.02)
    for name in ("first", "second"):
        tools.append({"name": name, "description": f"a{hidden}b", "inputSchema": {"type": "object"}})
    send(method="notifications/tools/list_changed")

threading.Thread(target=change, daemon=True).start()
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "initialize":
        result = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "changing", "version": "1"},
        }
        send(id=message["id"], result=result)
    elif "id" in message:
        send(id=message["id"], result={"tools": tools})
"""


def test_the_prompt_stands_again_below_warnings_that_come_while_it_waits(folder: Path) -> None:
    config = write_config(folder, {"odd": {"command": sys.executable, "args": ["-c", CHANGING], "protocol": "legacy"}})
    with on_terminal(*OFFLINE, "--config", config, cwd=folder, columns=300) as terminal:
        terminal.wait_for(PROMPT)
        (folder / "go").touch()
        shown = terminal.wait_for(r"'second' flagged: [^\n]*\n> $")
        terminal.type("/servers\n")
        terminal.wait_for(r"odd +ready +3[\s\S]*\n> $")
        terminal.type("\x04")
        assert terminal.end() == 0

    assert re.search(r"\n> \r?\nwarning: [^\n]*'first' flagged: [^\n]*\nwarning: [^\n]*'second' flagged: ", shown)


def test_a_message_whose_call_was_refused_or_failed_ends_with_1(folder: Path, config: Path) -> None:
    refused = toolweave(*OFFLINE, "-m", NOTE, cwd=folder)
    failed = toolweave(*OFFLINE, "-m", '/call numbers_divide {"value": 1, "by": 0}', cwd=folder)
    allowed = toolweave(*OFFLINE, "-m", NOTE, "--confirm", "never", cwd=folder)

    assert (refused.code, failed.code, allowed.code) == (1, 1, 0)
    assert "hint: --confirm never runs such calls without a question" in refused.err
    assert "--confirm" not in failed.err + allowed.err


def test_a_tool_is_called_by_hand_beside_a_real_model(folder: Path, config: Path) -> None:
    with on_terminal("chat", "--model", "test:aye", cwd=folder) as terminal:
        terminal.wait_for(PROMPT)
        for typed, expected in (
            (ADD, r'\{"sum": 42\}\r?\n> $'),
            ("/call numbers_divide {", r"not valid JSON|expected|JSON[\s\S]*> $"),
            ('/call numbers_divide {"value": 1, "by": 0}', r"division by zero[\s\S]*> $"),
            ("/call nothing", r"nothing[\s\S]*> $"),
            ("/call", r"which tool\?[\s\S]*> $"),
            ("hello", r"aye\r?\n> $"),
        ):
            terminal.type(f"{typed}\n")
            terminal.wait_for(expected)
        terminal.type("\x04")
        assert terminal.end() == 0
    assert "unknown command" not in terminal.text


def test_a_call_by_hand_is_stopped_by_the_interrupt_key(folder: Path) -> None:
    config = write_config(folder, {"echo": echo_command()})
    with on_terminal("chat", "--model", "test:aye", "--config", config, cwd=folder) as terminal:
        terminal.wait_for(PROMPT)
        terminal.type('/call echo_slow {"seconds": 600, "steps": 6000}\n')
        terminal.wait_for(r"echo_slow .*━")
        terminal.type("\x03")
        terminal.wait_for(r"stopped\r?\n> $")
        terminal.type("\x04")
        assert terminal.end() == 0


async def test_prompts_and_resources_of_servers_are_sent_to_the_model(folder: Path) -> None:
    config = write_config(folder, {"echo": echo_command()})

    def converse(variables: Mapping[str, str]) -> None:
        with on_terminal("chat", "--config", config, cwd=folder, env=variables) as terminal:
            for typed, expected in (
                ("/prompt", r"greet +name"),
                ("/prompt greet name='Ada of \"Lovelace\"'", r"Hello, Ada\."),
                ("/prompt greet", r"prompt 'greet' needs name"),
                ("/prompt greet name='Ada", r"the arguments cannot be split"),
                ("/prompt nothing", r"no prompt 'nothing'; there are greet, plain"),
                ("/resource", r"test://text"),
                ("/resource test://item/7", r"item 7"),
                ("/resource test://item/8 what is {{this}}?", r"It is eight\."),
                ("/resource test://none", r"error: "),
            ):
                terminal.wait_for(PROMPT)
                terminal.type(f"{typed}\n")
                terminal.wait_for(rf"{expected}[\s\S]*\n> $")
            terminal.type("\x04")
            assert terminal.end() == 0

    async with fake_openai(said("Hello, Ada."), said("It is eight.")) as fake:
        env = {"OPENAI_BASE_URL": fake.url, "OPENAI_API_KEY": KEY, "TOOLWEAVE_MODEL": "openai-chat:gpt-5.1"}
        await anyio.to_thread.run_sync(converse, env)

    first, second = (json.dumps(request.json["messages"]) for request in fake.requests)
    assert "Please greet Ada of" in first
    assert "item 8" in second
    assert "what is {{this}}?" in second


def test_offline_prompts_and_resources_are_shown(folder: Path) -> None:
    config = write_config(folder, {"echo": echo_command()})
    with on_terminal(*OFFLINE, "--config", config, cwd=folder) as terminal:
        for typed, expected in (
            ("/prompt greet name=Ada", r"user: Please greet Ada\."),
            ("/resource test://item/7", r"item 7"),
            ("/help", r"/prompt \[NAME key=value\]"),
        ):
            terminal.wait_for(PROMPT)
            terminal.type(f"{typed}\n")
            terminal.wait_for(rf"{expected}[\s\S]*\n> $")
        terminal.type("\x04")
        assert terminal.end() == 0


def test_without_servers_there_are_no_prompts(folder: Path) -> None:
    with on_terminal("chat", "--model", "test:aye", cwd=folder) as terminal:
        terminal.wait_for(PROMPT)
        terminal.type("/prompt greet\n")
        terminal.wait_for(r"there are no servers[\s\S]*\n> $")
        terminal.type("\x04")
        assert terminal.end() == 0


def test_help_in_a_pipe_says_what_the_offline_model_does(folder: Path, config: Path) -> None:
    done = toolweave(*OFFLINE, cwd=folder, stdin="/help\n")

    assert (done.code, done.out.partition(",")[0]) == (0, "`/call TOOL {JSON}` runs one")


def test_an_answer_in_a_script_with_joiners_is_shown_as_it_is_written(folder: Path) -> None:
    persian = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 \U0001f468\u200d\U0001f469\u200d\U0001f467"

    done = toolweave("chat", "--model", f"test:{persian}", "-m", "hello", cwd=folder, env={"PYTHONUTF8": "1"})

    assert done.out == f"{persian}\n"


# in a real terminal emulator

HARMLESS = "list the files of this project so that I can answer the question about them; " * 3


def asked_about(tmux: Tmux, folder: Path, arguments: Mapping[str, object], *, lines: int) -> str:
    """Call a tool that has to be allowed; return the screen with the question."""
    write_config(folder, {"echo": echo_command()})
    command = [*COMMAND, *OFFLINE, "--confirm", "always", "--config", "mcp.json", "--store", str(folder / "store.db")]
    tmux.do("new-session", "-d", "-x", "80", "-y", str(lines), "-c", str(folder), *command)
    tmux.wait_for("Enter a message, or /help.")
    tmux.type(f"/call echo_echo {json.dumps(arguments)}")
    screen = tmux.wait_for("run echo_echo? [y]es, [n]o, [a]lways")
    return screen.split("echo_echo is to run with")[-1]


def test_a_question_shows_the_whole_call_however_much_stands_before_what_matters(tmux: Tmux, folder: Path) -> None:
    hidden = {"comment": HARMLESS, "command": "rm -rf ~ # \u202eharmless"}

    shown = asked_about(tmux, folder, hidden, lines=40)

    assert re.sub(r"\s", "", HARMLESS) in re.sub(r"\s", "", shown)
    assert '"command": "rm -rf ~ # \\u202eharmless"' in shown
    assert "[v]iew" not in shown
    tmux.type("n")
    tmux.wait_for("the user said no")
    tmux.do("send-keys", "C-d")


def test_what_is_longer_than_a_screen_says_what_is_missing_and_can_be_seen_whole(tmux: Tmux, folder: Path) -> None:
    hidden = {f"line {number}": "harmless" for number in range(60)}
    hidden["line 30"] = "rm -rf ~"

    shown = asked_about(tmux, folder, hidden, lines=24)

    assert '"line 0": "harmless"' in shown
    assert '"line 59": "harmless"' in shown
    assert "rm -rf" not in shown
    assert re.search(r"--- \d+ lines, [\d,]+ characters, are NOT shown here: v shows them ---", shown)
    assert "[v]iew all of it" in shown
    tmux.type("v")
    seen = tmux.wait_for("more lines; Enter continues, q ends:")
    for next_one in ("--- 27 more lines", "--- 9 more lines", '"line 59": "harmless"\n}\nrun echo_echo?'):
        tmux.type("")
        seen += tmux.wait_for(next_one)
    assert '"line 30": "rm -rf ~"' in seen
    tmux.type("n")
    tmux.wait_for("the user said no")
    tmux.do("send-keys", "C-d")


def without_times(text: str) -> list[str]:
    """Return the lines of a screen, without what differs from time to time."""
    lines = [re.sub(r"\d+\.\d s$", "_ s", line.rstrip()) for line in text.splitlines()]
    return [line for line in lines if line not in ("", ">")]


@pytest.fixture
def tmux(tmp_path: Path) -> Generator[Tmux]:
    with open_tmux(tmp_path) as terminal:
        yield terminal


def test_a_conversation_in_tmux_looks_as_it_should(tmux: Tmux, folder: Path, config: Path) -> None:
    command = [*COMMAND, *OFFLINE, "--confirm", "always", "--store", str(folder / "store.db")]
    tmux.do("new-session", "-d", "-x", "100", "-y", "40", "-c", str(folder), *command)

    tmux.wait_for("Enter a message, or /help.")
    tmux.type('/call numbers_primes {"limit": 2000}')
    tmux.wait_for("[y]es, [n]o, [a]lways:")
    tmux.type("y")
    tmux.wait_for('"largest": 1999}\n>')  # the prompt is back: what is typed before it is seen elsewhere
    tmux.type("add")
    screen = tmux.wait_for("Write `/call numbers_add")

    page = (Path(__file__).parent.parent.parent / "docs" / "chat.md").read_text(encoding="utf-8")
    recorded = page.split("```text\n")[1].split("```")[0]
    assert without_times(screen) == without_times(recorded)
    tmux.do("send-keys", "C-d")
