"""The prompt loop: typed text goes to the agent, or is one of a few commands. Knows no model by name."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from toolweave.agent import Prompt, Run
from toolweave.cli._arguments import parse_object
from toolweave.cli._chat.history import SavedConversations
from toolweave.cli._chat.render import RunView
from toolweave.cli._commands.prompts import find_prompt, prompts_of, show_prompt, show_prompts, text_values
from toolweave.cli._commands.resources import owner_of, resources_of, show_contents, show_resources
from toolweave.cli._exit_codes import CommandError
from toolweave.cli._progress import call_progress
from toolweave.cli._questions import ask_line
from toolweave.cli._render.views import summary, table
from toolweave.cli._screen import answer, complain, note, show
from toolweave.cli._servers import OpenServers
from toolweave.compose import Agent
from toolweave.errors import ToolweaveError
from toolweave.protocol.server_features import PromptResult
from toolweave.tools import CallContext, ToolCall, ToolResult
from toolweave.tools.names import unknown_tool

_T = TypeVar("_T")
_HELP = """/tools          what can be called
/servers        the servers, and their states
/call TOOL {JSON}  run a tool yourself; its answer is shown, and the model does not see it
/prompt [NAME key=value]  send a prompt of a server; without a name, list them
/resource [URI TEXT]  show a resource, or send it with your text; without a URI, list them
/save NAME      keep this conversation under a name
/resume [NAME]  go on with a conversation; without a name, those that there are
/new            begin another one
/quit           the same as Ctrl-D; Ctrl-C stops an answer"""


class ChatSession:
    """A conversation with an agent until the input ends.

    Attributes:
        session: The name under which it is stored.
    """

    def __init__(
        self, agent: Agent, fleet: OpenServers | None, kept: SavedConversations, *, session: str, offline: bool
    ) -> None:
        self.session = session
        self._agent = agent
        self._fleet = fleet
        self._kept = kept
        self._offline = offline
        self._run: Run | None = None
        self._by_hand: anyio.CancelScope | None = None
        self._commands: dict[str, Callable[[str], Awaitable[None]]] = {
            "/help": self._show_help,
            "/tools": self._show_tools,
            "/servers": self._show_servers,
            **({} if offline else {"/call": self._call_by_hand}),
            "/prompt": self._use_prompt,
            "/resource": self._use_resource,
            "/save": self._save,
            "/resume": self._resume,
            "/new": self._begin,
        }

    async def until_the_end(self) -> None:
        """Read and answer messages until the input ends."""
        note("Enter a message, or /help.")
        while (line := await ask_line("> ")) is not None:
            text = line.strip()
            if text in ("/quit", "/exit"):
                return
            try:
                await self._answer(text)
            except (ToolweaveError, CommandError) as error:
                complain(error)
        note("")

    def interrupted(self) -> bool:
        """Cancel the current answer; return False if no answer is under way."""
        # Called by a signal handler of the event loop, so between two steps of the task that answers: `_run` and
        # `_by_hand` are set exactly while there is something to cancel.
        if self._by_hand is not None:
            self._by_hand.cancel()
            return True
        if self._run is None or self._run.done or self._run.cancelling:
            return False
        self._run.cancel("the user stopped it")
        return True

    async def _answer(self, text: str) -> None:
        if not text:
            return
        word, _, rest = text.partition(" ")
        command = self._commands.get(word)
        if command is not None:
            await command(rest.strip())
        elif text.startswith("/") and not self._offline:
            raise CommandError(f"unknown command {word!r}", hint="/help lists them")
        else:
            await self._send(text)

    async def _send(self, sent: str | Prompt) -> None:
        self._run = self._agent.send(sent, session=self.session)
        try:
            result = await RunView().show(self._run)
        finally:
            self._run = None
        if result.status == "cancelled":
            note("stopped")
        elif result.status != "completed":
            note(f"ended early: {result.why}")

    async def _call_by_hand(self, words: str) -> None:
        """Call a tool that the person named; typing its name is the approval."""
        name, _, written = words.partition(" ")
        if not name:
            raise CommandError("which tool?", hint='/call TOOL {"argument": ...}; /tools lists them')
        tools = self._agent.tools.snapshot()
        spec = next((one for one in tools if name == one.name or name in one.aliases), None)
        if spec is None:
            raise CommandError(unknown_tool(name, [one.name for one in tools]))
        arguments = parse_object(written.strip() or "{}", f"the arguments of {spec.name}")
        result = await self._stoppable(self._called(ToolCall(name=spec.name, arguments=arguments)))
        if result is None:
            return
        if result.is_error:
            complain(result.require_error())
        else:
            answer(result.for_person().text)

    async def _called(self, call: ToolCall) -> ToolResult:
        with call_progress(call.name) as listeners:
            return await self._agent.tools.call(call, CallContext(on_progress=listeners[0]))

    async def _use_prompt(self, words: str) -> None:
        fleet = self._servers()
        if not words:
            await self._stoppable(_list_prompts(fleet))
            return
        prompt = await self._stoppable(_filled_prompt(fleet, words))
        if prompt is None:
            return
        if self._offline:  # a model that follows commands, and answers no prompt
            show_prompt(prompt)
        else:
            await self._send(_prompt_message(prompt))

    async def _use_resource(self, words: str) -> None:
        fleet = self._servers()
        uri, _, text = words.partition(" ")
        text = text.strip()
        if self._offline:
            text = ""
        if not uri:
            await self._stoppable(_list_resources(fleet))
        elif not text:
            await self._stoppable(_show_resource(fleet, uri))
        else:
            message = await self._stoppable(_resource_message(fleet, uri, text))
            if message is not None:
                await self._send(message)

    async def _stoppable(self, work: Awaitable[_T]) -> _T | None:
        """Return the result of work, or None if the interrupt key ended it, which leaves the conversation open."""
        result: _T | None = None
        with anyio.CancelScope() as scope:
            self._by_hand = scope
            try:
                result = await work
            finally:
                self._by_hand = None
        if scope.cancelled_caught:
            note("stopped")
        return result

    def _servers(self) -> OpenServers:
        if self._fleet is None:
            raise CommandError("there are no servers", hint="name some with --config, --url or -- COMMAND")
        return self._fleet

    async def _show_help(self, _: str) -> None:
        if self._offline:
            extra = "\nother words search for a tool"
        else:
            extra = ""
        note(_HELP + extra)

    async def _show_tools(self, _: str) -> None:
        rows = [(spec.name, summary(spec.description or "")) for spec in self._agent.tools.snapshot()]
        show(table(["tool", "description"], rows))

    async def _show_servers(self, _: str) -> None:
        if self._fleet is None:
            note("no servers: name some with --config, --url or -- COMMAND")
            return
        servers = self._fleet.servers_json()
        rows = [(name, one["state"], str(one["tools"]), one["error"] or "") for name, one in servers.items()]
        show(table(["server", "state", "tools", "error"], rows, right=("tools",)))

    async def _save(self, name: str) -> None:
        if not name:
            raise CommandError("under which name?", hint="/save NAME")
        await self._kept.copy(self.session, name)
        self.session = name
        note(f"kept as {name}; continue it by /resume {name}, or toolweave chat --resume {name}")

    async def _resume(self, name: str) -> None:
        if not name:
            rows = [(one.session, str(one.messages), one.began) for one in await self._kept.all()]
            show(table(["conversation", "messages", "began with"], rows, right=("messages",)))
            return
        last = await self._kept.last_words(name)
        self.session = name
        note(f"continuing {name}; it ended with:\n{last}")

    async def _begin(self, _: str) -> None:
        self.session = self._kept.new_name()
        note("a new conversation")


async def _list_prompts(fleet: OpenServers) -> None:
    """Show the prompts of every server."""
    show_prompts(await fleet.ask(prompts_of))


async def _list_resources(fleet: OpenServers) -> None:
    """Show the resources and templates of every server."""
    show_resources(await fleet.ask(resources_of))


async def _filled_prompt(fleet: OpenServers, typed: str) -> PromptResult:
    """Fill in the prompt that is typed as `NAME key=value`.

    Raises:
        CommandError: No server has the prompt, several have it, or an argument is missing or is not understood.
        ServerError: The server cannot fill it in.
    """
    try:
        name, *words = shlex.split(typed)
    except ValueError as error:
        raise CommandError(f"the arguments cannot be split: {error}", hint="/prompt NAME key='two words'") from None
    values = text_values(words)
    server, prompt = find_prompt(fleet, await fleet.ask(prompts_of), name, values)
    return await fleet.hub.clients[server].get_prompt(prompt, values)


def _prompt_message(filled: PromptResult) -> Prompt:
    """Return the messages of a filled-in prompt, to be sent to a model.

    Raises:
        CommandError: They end with a message of the model, so that there is nothing to answer.
    """
    prompt = Prompt.from_mcp(filled)
    try:
        prompt.messages()
    except ValueError as error:
        raise CommandError(str(error)) from None
    return prompt


async def _show_resource(fleet: OpenServers, uri: str) -> None:
    """Show a resource.

    Raises:
        CommandError: No server has the resource, or several have it.
        ServerError: The server cannot read it.
    """
    owner = await owner_of(fleet, uri)
    show_contents(await owner.read_resource(uri))


async def _resource_message(fleet: OpenServers, uri: str, text: str) -> Prompt:
    """Read a resource and return it with a text about it, as one message.

    Raises:
        CommandError: No server has the resource, or several have it.
        ServerError: The server cannot read it.
    """
    owner = await owner_of(fleet, uri)
    # As a variable, whose value is not expanded: the text may have braces in it.
    about = Prompt("{{text}}", variables={"text": text})
    return about.add_file(await owner.read_resource(uri), name=uri)
