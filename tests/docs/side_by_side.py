"""The tasks of docs/side-by-side.md, run as they are, with a real HTTP server that is OpenAI's by shape.

The model behind it is a script, the same for theirs and ours, so that both do the same work and print the same.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import anyio.to_thread

from tests.docs.pages import CHECKOUT, SNIPPETS
from tests.models.fake_openai import call, chat_chunk, responses_turn, usage_chunk
from tests.models.http_server import Answer, Received, json_answer, serve, stream_answer
from toolweave import connect_mcp

__all__ = ["FOLDER", "SERVERS", "TASKS", "code_lines", "foreign_python", "printed", "served"]

FOLDER = SNIPPETS / "side_by_side"
FASTMCP = CHECKOUT / ".cache" / "reference" / "fastmcp" / "bin" / "python"
"""Where `scripts/reference-servers` installs FastMCP: it cannot live in one environment with all that tests need."""
PEERS = {
    "from fastmcp": FASTMCP,
    "from pydantic_ai.mcp": FASTMCP,
    "from langchain_mcp_adapters": CHECKOUT / ".cache" / "peers" / "langchain-mcp-adapters" / "bin" / "python",
}
"""Imports of what is installed elsewhere, and the Python that has it; `scripts/attacks` installs the last one."""

Turn: TypeAlias = str | Sequence[str] | Mapping[str, Mapping[str, Any]]
"""A text, a text in pieces, calls by the pattern of a tool's name, or a value for `{"": VALUE}`."""

SERVERS = ("serve_a_function", "resources_and_prompts")
"""Tasks whose programs are servers."""
TASKS: Mapping[str, Sequence[Turn]] = {
    "serve_a_function": (),
    "resources_and_prompts": (),
    "call_a_tool": (),
    "many_servers": (),
    "first_answer": ["Jane Austen."],
    "typed_answer": [{"": {"city": "Athens", "country": "Greece"}}],
    "tool_with_context": [{"roll_dice": {}, "player": {}}, "Ada, you win: it is a 4."],
    "streamed_text": [["One, ", "two, ", "three."]],
    "function_tool": [{"weather": {"city": "Oslo"}}, "It is sunny."],
    "server_of_an_agent": [{"*add": {"values": [1, 2, 39]}}, "It is 42."],
    "agent_as_a_tool": [{"translate": {"input": "Hello!", "message": "Hello!"}}, "¡Hola!", "Done: ¡Hola!"],
    "session": ["In San Francisco.", "In California."],
}
"""The tasks in the order of the page, and the turns of the model."""


def code_lines(text: str) -> int:
    """Return the number of lines that are neither blank nor a comment."""
    return sum(1 for line in text.splitlines() if line.strip() and not line.strip().startswith("#"))


def foreign_python(snippet: Path) -> str | None:
    """Return the Python that has what a snippet imports; None where its peer is not installed."""
    text = snippet.read_text(encoding="utf-8")
    python = next((python for line, python in PEERS.items() if line in text), None)
    if python is None:
        return sys.executable
    return str(python) if python.exists() else None


async def printed(turns: Sequence[Turn], snippet: Path, python: str, folder: Path) -> str:
    """Return what a program prints that is run in a folder, with a model that says `turns`."""
    model = _Model(turns)
    async with serve(model.handle) as server:
        environment = {
            **os.environ,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "OPENAI_API_KEY": "sk-test",
            "OPENAI_BASE_URL": server.url,
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
        }
        run = partial(
            subprocess.run,
            [python, str(snippet)],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        done = await anyio.to_thread.run_sync(run)
    assert done.returncode == 0, done.stderr + done.stdout
    assert not model.turns, "it asked the model less often"
    return done.stdout


async def served(snippet: Path, python: str) -> str:
    """Return what a client gets of a server: the answers of its tools, a resource and a prompt."""
    shown: list[str] = []
    async with connect_mcp({"command": python, "args": [str(snippet)]}, name="peer") as server:
        for tool in await server.list_tools():
            result = await tool.execute({"width": 3, "height": 4})
            shown.append(f"{tool.name}: {tool.description} {result.text}")
        for template in await server.list_resource_templates():
            read = await server.read_resource("notes://7")
            shown += [f"{template.uri_template}: {template.description}", *(str(one.text) for one in read)]
        for prompt in await server.list_prompts():
            got = await server.get_prompt(prompt.name, {"topic": "plants"})
            shown += [f"{prompt.name}: {prompt.description}", *(str(one.content) for one in got.messages)]
    return "\n".join([*shown, ""])


class _Model:
    """Answers requests by its script, over Chat Completions and Responses, streamed or whole."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self.turns = list(turns)

    async def handle(self, request: Received) -> Answer:
        """Answer one request with the next turn."""
        body = request.json
        turn = self.turns.pop(0)
        tools = [tool.get("function", tool)["name"] for tool in body.get("tools", ())]
        texts: list[str] = []
        calls: list[tuple[str, str]] = []
        if isinstance(turn, Mapping):
            for pattern, value in turn.items():
                found = [name for name in tools if fnmatch(name, pattern or "*")]
                if found:
                    calls.append((found[0], json.dumps(self._fitting(body, found[0], value))))
                else:
                    texts.append(json.dumps(value))
        else:
            texts = [turn] if isinstance(turn, str) else list(turn)
        answer = _responses if request.path.endswith("/responses") else _chat
        return answer(texts, calls, streamed=bool(body.get("stream")))

    def _fitting(self, body: Mapping[str, Any], name: str, value: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments that the tool has: an agent as a tool names its one parameter as it likes."""
        tool = next(one for tool in body["tools"] if (one := tool.get("function", tool))["name"] == name)
        return {key: one for key, one in value.items() if key in tool["parameters"].get("properties", ())}


def _chat(texts: Sequence[str], calls: Sequence[tuple[str, str]], *, streamed: bool) -> Answer:
    deltas = [{"content": text} for text in texts]
    made = [call(at, f"call_{at}", name, arguments) for at, (name, arguments) in enumerate(calls)]
    finish = "tool_calls" if calls else "stop"
    if streamed:
        chunks = [chat_chunk({"role": "assistant", "content": ""}), *map(chat_chunk, [*deltas, *made])]
        return stream_answer([*chunks, chat_chunk({}, finish), usage_chunk(12, 7), b"data: [DONE]\n\n"])
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts) or None}
    if calls:
        message["tool_calls"] = [{**one, "type": "function"} for delta in made for one in delta["tool_calls"]]
    choice = {"index": 0, "message": message, "finish_reason": finish}
    usage = {"prompt_tokens": 12, "completion_tokens": 7, "total_tokens": 19}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": "gpt-5.1"}
    return json_answer({**head, "choices": [choice], "usage": usage})


def _responses(texts: Sequence[str], calls: Sequence[tuple[str, str]], *, streamed: bool) -> Answer:
    none: list[Any] = []
    parts = [{"type": "output_text", "text": text, "annotations": none} for text in texts]
    items: list[dict[str, Any]] = []
    if texts:
        items.append({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": parts})
    for at, (name, arguments) in enumerate(calls):
        ids = {"id": f"fc_{at}", "call_id": f"call_{at}", "status": "completed"}
        items.append({"type": "function_call", **ids, "name": name, "arguments": arguments})
    if streamed:
        return responses_turn(*items)
    usage = {
        "input_tokens": 12,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 19,
    }
    head = {"id": "resp_1", "object": "response", "created_at": 0, "model": "gpt-5.1", "status": "completed"}
    rest = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": none, "output": items, "usage": usage}
    return json_answer({**head, **rest})
