"""A server's tools as a component: what is there between entering and leaving, and what an update changes."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from opentelemetry import trace
from opentelemetry.trace import NoOpTracer

from tests.hub.fleet import BOUND, ToolServer, absent, echo, next_change
from tests.leftovers import descendants, processes
from toolweave import (
    Agent,
    CallContext,
    ConfigError,
    ConnectError,
    ErrorKind,
    McpPool,
    McpTools,
    ModelError,
    Run,
    RunResult,
    Tool,
    ToolCall,
    ToolError,
    ToolRegistry,
    ToolsChanged,
    connect_mcp,
    connect_mcp_servers,
    mcp_component,
    tool,
)
from toolweave.compose import attach
from toolweave.models import ModelRequest, ScriptedModel, ToolMessage, tool_call


def files(**settings: Any) -> ToolServer:
    return ToolServer("files", ["read", "write", "delete"], **settings)


def children() -> set[int]:
    """Return the processes that were started from here, save the server of Redis that all tests share."""
    table = processes()
    shared = {row.pid for row in table if row.command.startswith("redis-server")}
    return descendants(table, os.getpid()) - shared


@pytest.mark.requirement("R71", "R72", "R31", "R39")
async def test_its_tools_are_there_from_entering_to_leaving_filtered_and_named_as_it_says() -> None:
    server = files()
    component = McpTools("files", server.config(), include=["read", "write"], exclude=["read"], tool_prefix="fs_")
    assert (component.tools.names, component.mounted, server.called) == ((), False, [])

    with anyio.fail_after(BOUND):
        async with component as entered:
            assert entered is component
            assert component.tools.names == ("fs_read", "fs_write")
            kept = component.tools["fs_read"]
            assert (await kept.execute()).text == "files|read"

    assert (component.tools.names, component.mounted) == ((), False)
    late = await kept.execute()
    assert late.require_error().kind is ErrorKind.CLOSED
    assert "not mounted" in late.text
    assert server.called == ["read"]


@pytest.mark.requirement("R71", "R74", "R21")
async def test_one_set_of_props_makes_any_number_of_components_each_with_a_life_of_its_own() -> None:
    told: list[str] = []
    upstream = files()

    def telling(word: str) -> Callable[..., None]:
        return lambda *_: told.append(word)

    async with McpPool() as pool:
        props: dict[str, Any] = {
            "server": "files",
            "config": upstream.config(),
            "runtime_config": {"timeout": 5},
            "include": ["read", "write"],
            "exclude": ["write"],
            "tool_prefix": "fs_",
            "client": pool,
            "on_mount": telling("mounted"),
            "on_unmount": telling("unmounted"),
            "on_start": telling("started"),
            "on_complete": telling("completed"),
        }
        one, other = McpTools(**props), McpTools(**props)
        agent = Agent(ScriptedModel([[tool_call("fs_read")], "done"]), tools=[one])
        assert told == []  # nothing is connected by making it
        with anyio.fail_after(BOUND):
            async with other:
                assert (await agent.send("read it")).text == "done"
                assert (one.mounted, other.mounted) == (False, True)
                assert other.tools.names == ("fs_read", "fs_write")  # include wins over exclude
                assert (await other.tools["fs_read"].execute()).text == "files|read"
            assert len(pool) == 1  # both used one connection, which is the pool's to close

    assert told == ["mounted", "mounted", "started", "completed", "unmounted", "unmounted"]
    assert upstream.called == ["read", "read"]


@pytest.mark.requirement("R74")
def test_props_that_cannot_be_right_are_refused_when_the_component_is_made() -> None:
    with pytest.raises(ConfigError, match="needs the config of its server, or a connection"):
        McpTools("files")
    with pytest.raises(ConfigError, match="files"):
        McpTools("files", {"transport": "stdio"})
    with pytest.raises(TypeError, match="tool_prefx"):
        McpTools("files", echo(), tool_prefx="fs_")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


@pytest.mark.requirement("R71")
async def test_the_config_may_be_of_any_shape_and_its_own_filters_and_prefix_hold_where_nothing_else_is_said() -> None:
    config = files().config(exclude=["delete"], tool_prefix="own_")

    with anyio.fail_after(BOUND):
        async with McpTools("files", config) as plain:
            assert plain.tools.names == ("own_read", "own_write")
        async with McpTools("files", config, tool_prefix="", exclude=["read"]) as said:
            assert said.tools.names == ("write", "delete")
        full = {"transport": "stdio", "connection": {"command": echo()["command"], "args": echo()["args"]}}
        async with McpTools("echo", full, include="echo") as stdio:
            assert (await stdio.tools["echo"].execute({"text": "hi"})).text == "hi"


@pytest.mark.requirement("R72", "R79")
async def test_an_agent_has_its_tools_while_it_is_mounted_and_exactly_those_go() -> None:
    server = files()

    def read() -> str:
        """Read the agent's own way."""
        return "own"

    agent = Agent(ScriptedModel([[tool_call("read"), tool_call("files_read")], "done"]), tools=[read])
    component = McpTools("files", server.config(), include=["read"])
    with anyio.fail_after(BOUND):
        async with agent, component:
            agent.tools.add(component)
            result = await agent.send("read twice")
            answered = result.messages[2]
            assert isinstance(answered, ToolMessage)
            assert [one.result.text for one in answered.outcomes] == ["own", "files|read"]
            assert agent.tools.list().names == ("read", "files_read")
        assert agent.tools.list().names == ("read",)
        agent.tools.remove(component)
    assert agent.tools.sources == ()


@pytest.mark.requirement("R72", "R36")
async def test_an_agent_mounts_what_is_not_mounted_for_as_long_as_it_works_and_leaves_alone_what_is() -> None:
    told: list[str] = []
    component = McpTools(
        "files",
        files().config(),
        on_mount=lambda _: told.append("mounted"),
        on_unmount=lambda _: told.append("unmounted"),
    )
    agent = Agent(ScriptedModel(lambda _: "done"), tools=[component])
    assert told == []

    with anyio.fail_after(BOUND):
        await agent.send("one")
        assert told == ["mounted", "unmounted"]
        async with component:
            await agent.send("two")
            await agent.send("three")
            assert component.mounted
    assert told == ["mounted", "unmounted"] * 2


@pytest.mark.requirement("R72")
async def test_a_registry_has_the_tools_of_a_component_in_step_and_what_replaced_one_stays() -> None:
    server = files()
    registry = ToolRegistry([tool(lambda: "mine", name="write", description="Mine.")])
    component = McpTools("files", server.config())

    with anyio.fail_after(BOUND):
        async with component:
            detach = attach(component, registry)
            assert registry.list().names == ("write", "read", "files_write", "delete")
            assert (await registry.execute("files_write")).text == "files|write"
            async with next_change(component, adds="copy"):
                await server.changed(["read", "copy", "delete"])
            assert registry.list().names == ("write", "read", "delete", "copy")
            registry.remove("delete")
            registry.add(tool(lambda: "mine", name="delete", description="Mine."))
        assert registry.list().names == ("write", "delete")
        async with component:
            assert "read" in registry
            detach()
            assert registry.list().names == ("write", "delete")
    assert (await registry.execute("delete")).text == "mine"


@pytest.mark.requirement("R21", "R72")
async def test_a_borrowed_hub_or_connection_is_never_closed() -> None:
    with anyio.fail_after(BOUND):
        async with connect_mcp_servers({}) as shared:
            postgres, disk = ToolServer("postgres", ["query"]), files()
            components = [
                McpTools("postgres", postgres.config(), client=shared),
                McpTools("files", disk.config(), client=shared),
            ]
            for component in components:
                async with component:
                    assert component.tools
            assert [client.state.value for client in shared.clients.values()] == ["ready", "ready"]
            async with McpTools("files", client=shared) as known, McpTools("files", disk.config(), client=shared):
                assert known.tools.names == ("read", "write", "delete")

        async with connect_mcp(files().config()) as connection:
            async with McpTools("files", client=connection, include=["read"]) as one:
                assert one.tools.names == ("read",)
            assert (await connection.call_tool("read")).text == "files|read"


async def test_a_component_needs_a_config_or_a_connection_that_knows_the_server() -> None:
    with pytest.raises(ConfigError, match=r"'files'.*config"):
        McpTools("files")
    with pytest.raises(ConfigError, match="command"):
        McpTools("files", {"transport": "stdio"})
    with pytest.raises(TypeError, match=r"on_tick_started.*on_tick_start"):
        McpTools("files", echo(), on_tick_started=print)  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match="on_mount= takes a function"):
        McpTools("files", echo(), on_mount="print")  # pyright: ignore[reportArgumentType]
    async with connect_mcp_servers({}) as hub:
        with pytest.raises(ConfigError, match="no such server"):
            await McpTools("files", client=hub).__aenter__()
        with pytest.raises(ConfigError, match="laid over"):
            McpTools("files", client=hub, runtime_config={"env": {"A": "1"}})


@pytest.mark.requirement("R73", "R27")
async def test_an_update_really_reconnects_with_the_runtime_config_and_the_old_process_is_gone() -> None:
    base = echo(env={"WHO": "nobody", "KEPT": "1"})
    component = McpTools("echo", base, runtime_config={"env": {"WHO": "ada", "KEPT": "1"}})
    with anyio.fail_after(BOUND):
        async with component:
            changes: list[ToolsChanged] = []
            component.subscribe(changes.append)
            before = await component.tools["env"].execute({"names": ["WHO", "KEPT"]})
            old = children()

            await component.update({"env": {"WHO": "bob"}})

            after = await component.tools["env"].execute({"names": ["WHO"]})
            assert len(children()) == len(old)
            assert old.isdisjoint(children())
            assert changes == []  # the same tools as before: nobody has to notice
        assert children() == set()
    assert before.structured_content == {"WHO": "ada", "KEPT": "1"}
    assert after.structured_content == {"WHO": "bob"}


@pytest.mark.requirement("R73")
async def test_a_call_during_an_update_waits_for_it_and_goes_to_the_new_connection() -> None:
    reached, go_on = anyio.Event(), anyio.Event()
    mounts: list[str] = []

    async def on_mount(component: McpTools) -> None:
        mounts.append(component.name)
        if len(mounts) == 2:
            reached.set()
            await go_on.wait()

    server = files()
    component = McpTools("files", server.config(), on_mount=on_mount)
    texts: list[str] = []

    async def call() -> None:
        texts.append((await component.tools["read"].execute()).text)

    with anyio.fail_after(BOUND):
        async with component, anyio.create_task_group() as tasks:
            tasks.start_soon(component.update, {"timeout": 5})
            await reached.wait()
            tasks.start_soon(call)
            await anyio.wait_all_tasks_blocked()
            assert texts == []
            go_on.set()
    assert texts == ["files|read"]


@pytest.mark.requirement("R73")
async def test_an_update_that_cannot_connect_leaves_no_tools_of_the_old_user_and_a_good_one_may_follow() -> None:
    component = McpTools("echo", echo())
    with anyio.fail_after(BOUND):
        async with component:
            kept = component.tools["echo"]
            async with next_change(component, removes="echo"):
                with pytest.raises(ConnectError):
                    await component.update({"command": "toolweave-test-no-such-program"})
            assert (component.tools.names, component.mounted, children()) == ((), False, set())
            assert (await kept.execute({"text": "hi"})).is_error
            with pytest.raises(ConfigError):
                await component.update({"transport": "http"})

            await component.update(None)

            assert (await kept.execute({"text": "hi"})).text == "hi"
    assert children() == set()


@pytest.mark.requirement("R73")
async def test_an_update_that_is_cancelled_leaves_no_tools_of_the_old_user_either() -> None:
    reached = anyio.Event()

    async def on_unmount(component: McpTools) -> None:
        reached.set()
        if len(scopes) == 1:
            await anyio.sleep_forever()

    scopes: list[anyio.CancelScope] = []
    component = McpTools("echo", echo(), on_unmount=on_unmount)

    async def update() -> None:
        with anyio.CancelScope() as scope:
            scopes.append(scope)
            await component.update({"env": {"WHO": "bob"}})

    with anyio.fail_after(BOUND):
        async with component:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(update)
                await reached.wait()
                scopes[0].cancel()
            assert (component.tools.names, component.mounted, children()) == ((), False, set())


@pytest.mark.requirement("R72")
async def test_leaving_it_while_being_cancelled_closes_its_connection_all_the_same() -> None:
    component = McpTools("echo", echo())
    with anyio.fail_after(BOUND):
        with anyio.CancelScope() as scope:
            async with component:
                scope.cancel()
        assert (component.tools.names, component.mounted, children()) == ((), False, set())
        async with component:
            assert component.tools


async def test_an_update_before_it_is_entered_is_what_it_is_entered_with() -> None:
    component = McpTools("echo", echo())
    await component.update({"env": {"WHO": "ada"}})

    with anyio.fail_after(BOUND):
        async with component:
            result = await component.tools["env"].execute({"names": ["WHO"]})
    assert result.structured_content == {"WHO": "ada"}


@pytest.mark.requirement("C26", "R71")
async def test_a_mount_that_fails_raises_unless_on_error_says_to_go_on() -> None:
    errors: list[Exception] = []

    async def go_on(error: Exception) -> bool:
        errors.append(error)
        return True

    def stop(error: Exception) -> None:
        errors.append(error)

    with anyio.fail_after(BOUND):
        with pytest.raises(ConnectError, match="'gone'"):
            async with McpTools("gone", absent()):
                raise AssertionError
        with pytest.raises(ConnectError):
            async with McpTools("gone", absent(), on_error=stop):
                raise AssertionError
        async with McpTools("gone", absent(), on_error=go_on) as component:
            assert (component.tools.names, component.mounted) == ((), False)
            assert (await component.call(ToolCall(name="read"), CallContext())).is_error
    assert [type(error) for error in errors] == [ConnectError, ConnectError]


@pytest.mark.requirement("C26", "R72")
async def test_what_on_mount_raises_closes_the_connection_again_and_what_on_unmount_raises_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(component: McpTools) -> None:
        raise LookupError(component.tools.names[0])

    with anyio.fail_after(BOUND):
        component = McpTools("echo", echo(), on_mount=refuse)
        with pytest.raises(LookupError, match="echo"):
            await component.__aenter__()
        assert (component.tools.names, children()) == ((), set())

        async with McpTools("echo", echo(), on_unmount=refuse):
            pass
    assert "on_unmount raised" in caplog.text
    assert children() == set()


@pytest.mark.requirement("R71")
async def test_its_hooks_are_called_and_waited_for_in_the_order_of_a_run() -> None:
    told: list[tuple[object, ...]] = []

    def note(name: str) -> Any:
        async def hook(*about: object) -> None:
            await anyio.lowlevel.checkpoint()
            told.append((name, *(one if isinstance(one, int) else type(one) for one in about)))

        return hook

    names = ("on_mount", "on_unmount", "on_start", "on_tick_start", "on_tick_end", "on_complete", "on_error")
    component = McpTools("files", files().config(), **{name: note(name) for name in names})

    def say(request: ModelRequest) -> str:
        told.append(("model",))
        return "done"

    model = ScriptedModel([tool_call("read"), say])

    with anyio.fail_after(BOUND):
        await Agent(model, tools=[component]).send("read")

    assert told == [
        ("on_mount", McpTools),
        ("on_start", Run),
        ("on_tick_start", Run, 1),
        ("on_tick_end", Run, 1),
        ("on_tick_start", Run, 2),
        ("model",),
        ("on_tick_end", Run, 2),
        ("on_complete", RunResult),
        ("on_unmount", McpTools),
    ]


@pytest.mark.requirement("R71")
async def test_a_component_sent_along_with_a_message_hears_of_that_run_alone_and_of_its_failure() -> None:
    starts: list[str] = []
    errors: list[str] = []
    completed: list[str] = []
    component = McpTools(
        "files",
        files().config(),
        on_start=lambda run: starts.append(run.id),
        on_complete=lambda result: completed.append(result.run_id),
        on_error=lambda error: errors.append(str(error)),
    )
    agent = Agent(ScriptedModel(["alone", tool_call("read"), ModelError("no more", model="scripted")]))
    with anyio.fail_after(BOUND):
        await agent.send("without")
        run = agent.send("with", tools=component)
        with pytest.raises(ModelError):
            await run

    assert (starts, completed) == ([run.id], [])
    assert ["no more" in error for error in errors] == [True]


@pytest.mark.requirement("R71")
async def test_what_a_hook_at_a_ticks_start_raises_ends_the_run() -> None:
    def refuse(run: Run, step: int) -> None:
        raise LookupError(f"step {step}")

    component = McpTools("files", files().config(), on_tick_start=refuse)
    model = ScriptedModel(["never said"])

    with anyio.fail_after(BOUND), pytest.raises(LookupError, match="step 1"):
        await Agent(model, tools=component).send("hi")

    assert model.requests == []


@pytest.mark.requirement("R32", "R36")
async def test_a_tool_to_include_that_is_not_there_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with anyio.fail_after(BOUND):
        async with McpTools("files", files().config(), include=["red", "files:write"]) as component:
            assert component.tools.names == ("write",)
    assert "no tool 'red'; did you mean 'read' or" in caplog.text
    assert "files:write" not in caplog.text


@pytest.mark.requirement("R75", "C25")
async def test_a_factory_makes_components_of_one_tool_or_says_that_all_are_meant() -> None:
    server = files()
    with pytest.raises(ValueError, match="tool_name=, or all=True"):
        mcp_component("files", server.config())
    with pytest.raises(ValueError, match="'files'"):
        mcp_component("files", server.config(), tool_name="read", all=True)
    with pytest.raises(ConfigError):
        mcp_component("files", {"transport": "stdio"}, all=True)

    ReadFile = mcp_component("files", server.config(), tool_name="read", tool_prefix="fs_")
    everything = mcp_component("files", server.config(), all=True)
    with anyio.fail_after(BOUND):
        async with ReadFile() as one:
            assert one.tools.names == ("fs_read",)
        async with everything() as all_of_them:
            assert all_of_them.tools.names == ("read", "write", "delete")
        with pytest.raises(ToolError, match="no tool 'red'; did you mean 'read'"):
            async with mcp_component("files", server.config(), tool_name="red")():
                raise AssertionError
    assert repr(ReadFile) == "<component of 'read' of 'files'>"


@pytest.mark.requirement("R75", "R21")
async def test_each_component_of_a_factory_may_have_a_client_and_a_runtime_config_of_its_own() -> None:
    mounted: list[str] = []
    env = mcp_component("echo", echo(), tool_name="env", on_mount=lambda component: mounted.append(component.name))
    with anyio.fail_after(BOUND):
        async with McpPool() as pool:
            async with env(client=pool, runtime_config={"env": {"WHO": "ada"}}) as ada, env(client=pool) as nobody:
                results = [await one.tools["env"].execute({"names": ["WHO"]}) for one in (ada, nobody)]
            assert len(pool) == 2
    assert [result.structured_content["WHO"] for result in results] == ["ada", None]
    assert mounted == ["echo", "echo"]


class Spans(NoOpTracer):
    """A tracer that notes its spans."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, Any]] = []

    def start_as_current_span(self, name: str, *args: Any, **options: Any) -> Any:
        self.begun.append((name, options["attributes"]))
        return super().start_as_current_span(name, *args, **options)


@pytest.mark.requirement("R49", "R48")
async def test_a_servers_tool_is_an_executable_that_tells_its_definition_its_server_and_that_servers_config() -> None:
    entry = {**echo(), "tool_prefix": "say_", "timeout": {"call": 7}}

    @tool
    def local(text: str) -> str:
        """Return the text."""
        return text

    with anyio.fail_after(BOUND):
        async with connect_mcp_servers({"mcpServers": {"parrot": entry}}) as hub:
            there = hub.tools["say_echo"]
            config = hub.clients["parrot"].config
            result = await there.execute({"text": "hi"})

    assert (there.name, there.original_name, there.server) == ("say_echo", "echo", "parrot")
    assert there.description
    assert there.parameters == there.raw["inputSchema"]
    assert there.parameters["properties"]["text"]["type"] == "string"
    assert (config.name, config.tool_prefix, config.timeout.call) == ("parrot", "say_", 7)
    assert result.text == "hi"
    assert local.server is None  # what tells a server's tool from one that runs here
    assert isinstance(there, Tool)
    assert isinstance(local, Tool)


@pytest.mark.requirement("R49")
async def test_a_run_of_its_tools_is_a_span_where_open_telemetry_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    spans = Spans()

    def get_tracer(name: str) -> NoOpTracer:
        return spans

    monkeypatch.setattr(trace, "get_tracer", get_tracer)
    with anyio.fail_after(BOUND):
        async with McpTools("files", files().config(), tool_prefix="fs_") as component:
            await component.tools["fs_read"].execute()
    assert spans.begun == [("tool:run", {"gen_ai.tool.name": "read", "toolweave.server": "files"})]


async def test_what_it_shows_of_itself_holds_no_secret() -> None:
    component = McpTools("api", {"url": "http://127.0.0.1:9/mcp"}, runtime_config={"auth": "s3cr3t-t0k3n-0123"})

    assert repr(component) == "<McpTools 'api': 0 tools, not mounted>"


@pytest.mark.requirement("R71", "R73")
async def test_the_hooks_of_an_update_may_call_its_tools_though_others_wait() -> None:
    texts: list[str] = []

    async def hook(component: McpTools) -> None:
        texts.append((await component.tools["read"].execute()).text)

    with anyio.fail_after(BOUND):
        async with McpTools("files", files().config(), on_mount=hook, on_unmount=hook) as component:
            await component.update({"timeout": 5})
            assert len(texts) == 3

    assert texts == ["files|read"] * 4


async def test_leaving_it_once_too_often_harms_nobody_who_enters_it_later() -> None:
    component = McpTools("files", files().config())
    with anyio.fail_after(BOUND):
        async with component:
            pass
        await component.__aexit__(None, None, None)
        async with component:
            assert component.tools.names == ("read", "write", "delete")
        assert not component.mounted


@pytest.mark.requirement("R31", "R71")
@pytest.mark.parametrize(
    ("own", "given", "names"),
    [
        ({"include": ["read", "delete"]}, {"exclude": ["delete"]}, ("read",)),
        ({"include": ["read"]}, {"exclude": ["files:read"]}, ()),
        ({"exclude": ["*"]}, {"exclude": ["read"]}, ()),
        ({"include": ["read"]}, {"include": ["write"]}, ("write",)),
        ({"exclude": ["*"]}, {"include": ["read"]}, ("read",)),
        ({}, {"exclude": "read"}, ("write", "delete")),
        ({}, {"exclude": "*"}, ()),
    ],
)
async def test_a_component_that_excludes_offers_no_more_than_its_config_includes(
    own: dict[str, Any], given: dict[str, Any], names: tuple[str, ...]
) -> None:
    with anyio.fail_after(BOUND):
        async with McpTools("files", files().config(**own), tool_prefix="", **given) as component:
            assert component.tools.names == names
