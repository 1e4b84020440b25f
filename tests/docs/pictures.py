"""The pictures of the documentation: one conversation with `toolweave chat`, in a real terminal, moment by moment.

The command, its servers and the terminal are real. The model is a script behind an endpoint of OpenAI's shape, which
refuses what the real one refuses; it waits before each piece, and the slow tool before each step, until the moment
before was seen. `scripts/pictures` runs it; a picture in which nothing but a time has changed is left as it is.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.from_thread
import anyio.to_thread

from tests.cli.tmux import SECONDS, Tmux, open_tmux
from tests.docs.drawing import Screen, masked, picture, recording
from tests.docs.pages import CHECKOUT
from tests.models.fake_openai import KEY, FakeOpenAI, call, chat_chunk, fake_openai, usage_chunk
from tests.models.http_server import Answer
from toolweave.cli.demo.numbers import numbers_server
from toolweave.cli.demo.serving import serving_http
from toolweave.config import TrustedFiles, load_config
from toolweave.serve import create_mcp_server
from toolweave.tools import CallContext, Progress, ToolCall, ToolResult, Toolset, ToolSnapshot, WrapperToolset

__all__ = ["IMAGES", "pictures"]

IMAGES = CHECKOUT / "docs" / "images"
TITLE = "toolweave chat"
COLUMNS, LINES = 92, 40
QUESTION = ("How many primes are there", " below 5000?", " Write it into my notes.")
FIRST = ("I count them,", " and look whether", " a note has it already.")
LAST = ("There are 669 primes", " below 5000;", " the largest is 4999.", " Note 4 says", " so now.")
UNSET = ("NO_COLOR", "FORCE_COLOR", "COLORTERM", "CI", "ENV", "COLUMNS", "LINES", "ANTHROPIC_API_KEY", "TMUX")


async def pictures() -> dict[str, str]:
    """Return the pictures, by their file names."""
    with tempfile.TemporaryDirectory(prefix="toolweave-") as name, Conversation(Path(name)).open() as conversation:
        async with fake_openai(*conversation.model.turns) as fake:
            await anyio.to_thread.run_sync(conversation.hold, fake)
    stills = {
        f"chat-{name}.svg": picture(one, title=TITLE, columns=COLUMNS) for name, one in conversation.stills.items()
    }
    return {"chat.svg": recording(conversation.seen, title=TITLE, columns=COLUMNS), **stills}


class Model:
    """What the model says, piece by piece; it says the next one when it may.

    Attributes:
        turns: Its turns as an endpoint streams them.
    """

    def __init__(self) -> None:
        self._may: list[asyncio.Event] = []
        search, primes = ("notes_search_notes", {"query": "primes"}), ("numbers_primes", {"limit": 5000})
        add = ("notes_add_note", {"text": "There are 669 primes below 5000."})
        self.turns = [self._turn(FIRST, search, primes), self._turn((), add), self._turn(LAST)]

    def go_on(self) -> None:
        """Say the next piece; called from the thread that looks on."""
        anyio.from_thread.run_sync(self._may.pop(0).set)

    def _turn(self, texts: Sequence[str], *calls: tuple[str, Mapping[str, Any]]) -> Answer:
        made = [call(at, f"call_{name}", name, json.dumps(given)) for at, (name, given) in enumerate(calls)]
        pieces: list[bytes | asyncio.Event] = []
        for delta in [*({"content": text} for text in texts), *made]:
            if "content" in delta:
                self._may.append(asyncio.Event())
                pieces.append(self._may[-1])
            pieces.append(_event(chat_chunk(delta)))
        ending = chat_chunk({}, "tool_calls" if calls else "stop")
        self._may.append(asyncio.Event())
        pieces += [self._may[-1], _event(ending), _event(usage_chunk(12, 7)), b"data: [DONE]\n\n"]
        return Answer(200, {"content-type": "text/event-stream"}, pieces)


class Conversation:
    """One conversation, watched.

    Attributes:
        seen: What the terminal showed, and for how many seconds a recording shows it.
        stills: The moments that have a picture of their own.
    """

    def __init__(self, folder: Path) -> None:
        self.model: Final = Model()
        self.seen: list[tuple[Screen, float]] = []
        self.stills: dict[str, Screen] = {}
        self._folder = folder
        self._steps = threading.Semaphore(0)
        self._terminal: Tmux

    @contextmanager
    def open(self) -> Generator[Conversation]:
        """Open the servers and the terminal."""
        gated = _Gated(numbers_server(pause=0).tools, self._steps)
        server = create_mcp_server("toolweave-demo-numbers", "1.0.0", tools=gated)
        with serving_http(server) as url, open_tmux(self._folder) as self._terminal:
            notes = {"command": sys.executable, "args": ["-m", "toolweave.cli.demo.notes"]}
            config = {"mcpServers": {"notes": notes, "numbers": {"url": url}}}
            (self._folder / "mcp.json").write_text(json.dumps(config), encoding="utf-8")
            loaded = load_config(self._folder / "mcp.json")
            TrustedFiles(self._folder / "state" / "toolweave" / "trusted.json").trust(loaded.files[0])
            try:
                yield self
            finally:
                self._steps.release(100)

    def hold(self, fake: FakeOpenAI) -> None:
        """Hold the conversation, from a thread."""
        self._begin(fake.url)
        self._ask()
        self._calls()
        self._answer()
        self._commands()
        results = [one["content"] for one in fake.checked[-1]["messages"] if one["role"] == "tool"]
        said = [json.loads(result) for result in results]
        assert said == [
            {"notes": []},
            {"count": 669, "largest": 4999},
            {"number": 4, "text": "There are 669 primes below 5000."},
        ], "the model would say what is not so"
        self._terminal.do("send-keys", "C-d")
        self._look(r"\n\$$")

    def _begin(self, url: str) -> None:
        kept = {name: value for name, value in os.environ.items() if name not in UNSET}
        env = {
            **kept,
            "HOME": str(self._folder),
            "XDG_DATA_HOME": str(self._folder / "data"),
            "XDG_STATE_HOME": str(self._folder / "state"),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", "")]),
            "LANG": "C.UTF-8",
            "PS1": "$ ",
            "OPENAI_BASE_URL": url,
            "OPENAI_API_KEY": KEY,
            "TOOLWEAVE_MODEL": "openai-chat:gpt-5.1",
        }
        shell = ("env", "TERM=xterm-256color", "sh")
        size = ("-x", str(COLUMNS), "-y", str(LINES))
        self._terminal.do("new-session", "-d", *size, "-c", str(self._folder), *shell, env=env)
        self._look(r"^\$$")
        self._type("toolweave chat")
        self._see(r"^\$ toolweave chat$", 1)
        self._enter()
        self._see(r"Enter a message, or /help\.\n>$", 1)

    def _ask(self) -> None:
        for at, words in enumerate(QUESTION, 1):
            self._type(words)
            self._see(re.escape("> " + "".join(QUESTION[:at])) + "$", 0.4 if at < len(QUESTION) else 1)
        self._enter()

    def _calls(self) -> None:
        for at in range(1, len(FIRST) + 1):
            self.model.go_on()
            self._see(re.escape("".join(FIRST[:at])) + "$", 0.3)
        self.model.go_on()
        for step in (3, 6, 9, 12, 15, 18):
            self._steps.release(3)
            reached = 1 + 4999 * step // 20
            self._see(rf"✓ notes_search_notes .* s\n.*numbers_primes .*━.* up to {reached}$", 0.35)
            if step == 12:
                self.stills["calls"] = self.seen[-1][0]
        self._steps.release(2)

    def _answer(self) -> None:
        done = r"✓ numbers_primes .* s\n"
        self.model.go_on()
        self._see(done + r"run notes_add_note .*:$", 2)
        self.stills["approval"] = self.seen[-1][0]
        self._type("y")
        self._enter()
        for at in range(1, len(LAST) + 1):
            self.model.go_on()
            self._see(r"✓ notes_add_note .* s\n" + re.escape("".join(LAST[:at])) + "$", 0.3)
        self.model.go_on()
        self._see(re.escape(LAST[-1]) + r"\n>$", 5)

    def _commands(self) -> None:
        self._type("/servers")
        self._enter()
        self._look(r"numbers +ready[^\n]*\n>$")
        self._type("/tools")
        self._enter()
        shown = self._look(r"numbers_primes [^\n]*\n>$")
        self.stills["commands"] = shown.since("> /servers")

    def _type(self, text: str) -> None:
        self._terminal.do("send-keys", "-l", text)

    def _enter(self) -> None:
        self._terminal.do("send-keys", "Enter")

    def _see(self, pattern: str, seconds: float) -> None:
        """Look until the screen ends like this, and keep what it shows."""
        self.seen.append((self._look(pattern), seconds))

    def _look(self, pattern: str) -> Screen:
        deadline = time.monotonic() + SECONDS
        before = None
        while True:
            shown = self._screen()
            same = before is not None and masked(shown.text) == masked(before.text) and shown.cursor == before.cursor
            if same and re.search(pattern, shown.plain):
                return shown
            assert time.monotonic() < deadline, f"{pattern!r} never came; shown was:\n{shown.plain}"
            before = shown

    def _screen(self) -> Screen:
        # one command, so that nothing moves between the two
        where = ("display-message", "-p", "#{cursor_flag} #{cursor_x} #{cursor_y}")
        text, _, cursor = self._terminal.do("capture-pane", "-e", "-p", ";", *where).rstrip("\n").rpartition("\n")
        visible, x, y = map(int, cursor.split())
        return Screen(text, (x, y) if visible else None)


class _Gated(WrapperToolset):
    """Tools whose reports of progress wait, each for one step."""

    def __init__(self, toolset: Toolset, steps: threading.Semaphore) -> None:
        super().__init__(toolset)
        self._toolset = toolset
        self._steps = steps

    def snapshot(self) -> ToolSnapshot:
        """Return the definitions as they are."""
        return self._toolset.snapshot()

    async def call(self, call: ToolCall, ctx: CallContext) -> ToolResult:
        """Run a tool."""

        async def report(progress: Progress) -> None:
            await anyio.to_thread.run_sync(partial(self._steps.acquire, timeout=SECONDS))
            await ctx.progress(progress.progress, progress.total, progress.message)

        return await self._toolset.call(call, ctx.replace(on_progress=report))


def _event(chunk: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    for _name, _made in anyio.run(pictures).items():
        _path = IMAGES / _name
        if not _path.exists() or masked(_path.read_text(encoding="utf-8")) != masked(_made):
            _path.write_text(_made, encoding="utf-8")
            print(_path.relative_to(CHECKOUT), len(_made.encode()))
