"""Agents as tools: one message in, an answer or an error out; guarded against depth and cycles."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from tests.serve.serving import served_http
from tests.tools.doubles import Scripted, spec
from toolweave import (
    Agent,
    CallContext,
    Limits,
    ModelError,
    Prompt,
    ToolResult,
    ToolSpec,
    connect_mcp,
    create_mcp_server,
    tool,
)
from toolweave.agent import (
    Approval,
    ApprovalRequested,
    ChildFinished,
    ChildStarted,
    RunStarted,
    ToolFinished,
    ToolProgress,
    current_run,
    parallelize,
)
from toolweave.models import (
    AssistantMessage,
    Finished,
    ModelRequest,
    ScriptedModel,
    TextPart,
    ToolCallPart,
    ToolMessage,
    Usage,
    UserMessage,
    tool_call,
)
from toolweave.serve import BearerAuth
from toolweave.tools import Progress, Tool, ToolCall


def echo(request: ModelRequest) -> str:
    """Say what the user said so far."""
    return " / ".join(one.text for one in request.messages if isinstance(one, UserMessage))


def wander(request: ModelRequest) -> ToolCallPart:
    """Call a tool that is not there."""
    return tool_call("nothing")


def ask_worker(request: ModelRequest) -> ToolCallPart | str:
    """Send the worker one message and be done."""
    return "done" if isinstance(request.messages[-1], ToolMessage) else tool_call("agent_worker", {"message": "m"})


def worker(turns: Any = echo, **options: Any) -> Agent:
    return Agent(ScriptedModel(turns), name="worker", **options)


@pytest.mark.requirement("R85", "C22")
async def test_an_agent_is_a_tool_with_one_message() -> None:
    made = worker(description="Works.").as_tool()

    assert (made.name, made.description) == ("agent_worker", "Works.")
    assert list(made.input_schema["properties"]) == ["message"]
    assert made.input_schema["required"] == ["message"]
    assert made.input_schema["additionalProperties"] is False
    assert (await made.execute({"message": "hi"})).text == "hi"
    renamed = worker().as_tool("helper", "Helps.")
    assert (renamed.name, renamed.description) == ("helper", "Helps.")


async def test_what_is_no_message_is_refused_before_anything_runs() -> None:
    agent = worker()

    result = await agent.as_tool().execute({"text": "hi"})

    assert result.is_error
    assert agent.model.requests == []  # type: ignore[attr-defined]


@pytest.mark.requirement("R85", "D24")
async def test_a_call_is_a_whole_run_with_the_agents_own_tools() -> None:
    def add(a: int, b: int) -> int:
        return a + b

    agent = worker([tool_call("add", {"a": 1, "b": 2}), "three"], tools=[add])
    parent = Agent(ScriptedModel([tool_call("agent_worker", {"message": "1+2?"}), "it says three"]))
    parent.tools.add(agent.as_tool())

    result = await parent.send("ask the worker")

    assert result.text == "it says three"
    assert result.messages[2].outcomes[0].result.text == "three"  # type: ignore[union-attr]


async def test_a_typed_answer_is_structured_content() -> None:
    agent = worker(['{"n": 3}'], output_type={"type": "object", "properties": {"n": {"type": "integer"}}})

    result = await agent.as_tool().execute({"message": "hi"})

    assert result.structured_content == {"n": 3}


@pytest.mark.requirement("C23")
@pytest.mark.parametrize(
    "turns, options, said",
    [
        ([ModelError("busy", model="m", kind="overloaded")], {}, "agent 'worker' failed: model 'm': busy"),
        (wander, {"max_steps": 2}, "ended before it was done (max_steps)"),
        (
            [Finished(message=AssistantMessage(parts=(TextPart(text="no"),)), stop_reason="refusal")],
            {},
            "(refusal); its last text: no",
        ),
    ],
)
async def test_the_failure_of_an_agent_is_an_error_result(turns: Any, options: Any, said: str) -> None:
    made = worker(turns, **options).as_tool()

    for ctx in (CallContext(), CallContext(on_progress=lambda progress: None)):
        agent = worker(turns, **options)
        result = await agent.as_tool().execute({"message": "hi"}, ctx)
        assert result.is_error
        assert said in result.text
    assert made.name == "agent_worker"


async def test_a_parents_stream_tells_of_its_children_and_counts_what_they_took() -> None:
    turn = Finished(message=AssistantMessage(parts=(TextPart(text="ok"),)), usage=Usage(input_tokens=7, cost=1.0))
    parent = Agent(
        ScriptedModel([tool_call("agent_worker", {"message": "x"}), "done"]), tools=[worker([turn]).as_tool()]
    )
    run = parent.send("go")

    events = [event async for event in run]

    (started,) = [event for event in events if isinstance(event, ChildStarted)]
    (finished,) = [event for event in events if isinstance(event, ChildFinished)]
    assert (started.agent, started.run_id) == ("worker", run.id)
    assert finished.result.text == "ok"
    child = run.children[started.child_id]
    assert (child.parent, child.depth, child.agent) == (run, 1, "worker")
    assert [event.parent_id async for event in child if isinstance(event, RunStarted)] == [run.id]
    assert (await run).usage == Usage(input_tokens=7, cost=1.0)


async def test_what_children_take_counts_against_the_parents_limits() -> None:
    turn = Finished(message=AssistantMessage(parts=(TextPart(text="ok"),)), usage=Usage(input_tokens=100))
    parent = Agent(
        ScriptedModel([tool_call("agent_worker", {"message": "x"}), "done"]),
        tools=[worker([turn]).as_tool()],
        limits=Limits(tokens=50),
    )

    assert (await parent.send("go")).stop_reason == "token_limit"


async def test_cancelling_a_parent_cancels_its_children() -> None:
    reached = anyio.Event()

    async def forever() -> None:
        reached.set()
        await anyio.sleep_forever()

    child = worker([tool_call("forever"), "x"], tools=[forever])
    run = Agent(ScriptedModel([tool_call("agent_worker", {"message": "x"}), "y"]), tools=[child.as_tool()]).send("go")
    run.start()
    await reached.wait()
    run.cancel()
    await run

    assert [one.status for one in run.children.values()] == ["cancelled"]


async def test_an_agent_cannot_be_called_from_within_itself() -> None:
    inner = Agent(ScriptedModel([tool_call("agent_outer", {"message": "back"}), "inner done"]), name="inner")
    outer = Agent(ScriptedModel([tool_call("agent_inner", {"message": "in"}), "outer done"]), name="outer")
    inner.tools.add(outer.as_tool())
    outer.tools.add(inner.as_tool())

    run = outer.send("go")

    assert (await run).text == "outer done"
    (child,) = run.children.values()
    refused = [event.result.text async for event in child if isinstance(event, ToolFinished)]
    assert "already at work" in refused[0]


async def test_agents_call_agents_only_so_deep() -> None:
    last = worker(["never"])
    chain = last
    for number in range(3):
        model = ScriptedModel([tool_call(chain.as_tool().name, {"message": "down"}), f"level {number}"])
        chain = Agent(model, name=f"level{number}", tools=[chain.as_tool()], limits=Limits(depth=2))
    last_guarded = Agent(ScriptedModel(["never"]), name="deep", limits=Limits(depth=2))
    assert last_guarded.max_depth == 2

    result = await chain.send("go")

    assert result.text == "level 2"
    assert last.model.requests != []  # type: ignore[attr-defined]  # its own bound is five
    chain = Agent(ScriptedModel(["never"]), name="deep", limits=Limits(depth=1))
    for number in range(2):
        model = ScriptedModel([tool_call(chain.as_tool().name, {"message": "down"}), "ok"])
        chain = Agent(model, name=f"above{number}", tools=[chain.as_tool()])
    run = chain.send("go")
    finished = [event.result.text async for event in run if isinstance(event, ChildFinished)]
    assert finished == ["ok"]
    (child,) = run.children.values()
    refused = [event.result.text async for event in child if isinstance(event, ToolFinished)]
    assert "1 deep" in refused[0]


async def test_a_conversation_is_kept_for_a_calling_session_where_that_is_asked_for() -> None:
    def parent(child: Agent, **how: Any) -> Agent:
        return Agent(ScriptedModel(ask_worker), tools=[child.as_tool(**how)])

    kept, fresh = worker(), worker()
    keeps, forgets = parent(kept, keep_conversation=True), parent(fresh)
    for agent in (keeps, forgets):
        await agent.send("go", session="s")
        await agent.send("go", session="s")
        await agent.send("go", session="other")

    said = [[echo(request) for request in agent.model.requests] for agent in (kept, fresh)]  # type: ignore[attr-defined]
    assert said == [["m", "m / m", "m"], ["m", "m", "m"]]


async def test_a_function_may_name_the_conversation() -> None:
    made = worker().as_tool(keep_conversation=lambda ctx: ctx.state.get("user"))

    texts = [
        (await made.execute({"message": "m"}, CallContext(state={"user": user}))).text
        for user in ("ann", "bob", "ann", None, None)
    ]

    assert texts == ["m", "m", "m / m", "m", "m"]


@pytest.mark.requirement("R85")
async def test_a_served_agent_keeps_a_conversation_for_each_client() -> None:
    served = create_mcp_server(name="desk", version="1", tools=[worker().as_tool(keep_conversation=True)])

    async with connect_mcp(served) as ann, connect_mcp(served) as bob:
        texts = [
            (await client.call_tool("agent_worker", {"message": text})).text
            for client, text in ((ann, "a"), (bob, "b"), (ann, "c"))
        ]

    assert texts == ["a", "b", "a / c"]


@pytest.mark.requirement("R85", "C22")
async def test_a_server_offers_an_agent_as_it_is() -> None:
    served = create_mcp_server(name="desk", version="1", agents=[worker()])

    async with connect_mcp(served) as client:
        result = await client.call_tool("agent_worker", {"message": "hello"})

    assert result.text == "hello"


async def test_what_a_child_has_to_ask_a_person_reaches_whoever_watches_the_parent() -> None:
    def wipe() -> str:
        return "wiped"

    child = worker([tool_call("wipe", id="same"), "done"], tools=[wipe], confirm="always")
    run = Agent(
        ScriptedModel([tool_call("agent_worker", {"message": "x"}, id="same"), "fine"]), tools=[child.as_tool()]
    ).send("go")
    asked: list[str] = []

    async for event in run:
        if isinstance(event, ApprovalRequested):
            asked.append(event.tool.name)
            assert event.run_id != run.id
            assert [call.name for call in run.waiting] == ["wipe"]
            assert run.approve(event)

    assert asked == ["wipe"]
    assert child.model.requests[1].messages[-1].outcomes[0].result.text == "wiped"  # type: ignore[attr-defined]


async def test_a_served_agent_that_would_have_to_ask_is_denied_instead_of_waiting() -> None:
    def wipe() -> str:
        return "wiped"

    agent = worker([tool_call("wipe"), "could not"], tools=[wipe], confirm="always")

    result = await agent.as_tool().execute({"message": "x"})

    assert result.text == "could not"


async def test_progress_of_a_child_says_what_it_does() -> None:
    def look() -> str:
        return "seen"

    seen: list[Progress] = []
    made = worker([tool_call("look"), "done"], tools=[look]).as_tool()
    await made.execute({"message": "x"}, CallContext(on_progress=seen.append))

    assert [(one.progress, one.message) for one in seen] == [(1, "turn 1"), (2, "calls look"), (3, "turn 2")]
    run = Agent(ScriptedModel([tool_call(made.name, {"message": "x"}), "y"]), tools=[worker(["a"]).as_tool()]).send(
        "go"
    )
    told = [event.progress.message async for event in run if isinstance(event, ToolProgress)]
    assert told == ["turn 1"]


async def test_meta_and_state_pass_through_an_agent_to_its_tools() -> None:
    seen: list[CallContext] = []

    async def look(ctx: CallContext) -> None:
        seen.append(ctx)

    made = worker([tool_call("look"), "done"], tools=[look]).as_tool()
    await made.execute({"message": "x"}, CallContext(meta={"traceparent": "00"}, state={"db": 1}))

    assert (seen[0].meta, seen[0].state) == ({"traceparent": "00"}, {"db": 1})


async def test_a_run_that_a_tool_starts_by_hand_is_a_child_too() -> None:
    other = worker()

    async def delegate(message: str) -> str:
        return (await other.send(Prompt(message))).text

    run = Agent(ScriptedModel([tool_call("delegate", {"message": "hi"}), "done"]), tools=[delegate]).send("go")
    await run

    assert [child.agent for child in run.children.values()] == ["worker"]
    assert current_run() is None


@pytest.mark.requirement("C28")
async def test_parallelize_makes_many_calls_at_once_and_answers_in_their_order() -> None:
    all_there = anyio.Event()
    running = 0

    async def work(number: int) -> str:
        """Work on a number."""
        nonlocal running
        running += 1
        if running == 3:
            all_there.set()
        await all_there.wait()
        if number == 2:
            raise ValueError("two is too many")
        return f"did {number}"

    made = parallelize(tool(work, annotations={"readOnlyHint": True}))
    result = await made.execute({"calls": [{"number": 1}, {"number": 2}, {"number": 3}]})

    assert (made.name, made.annotations) == ("parallel_work", {"readOnlyHint": True})
    assert "Work on a number." in made.description
    assert not result.is_error
    assert result.text == "[1]\ndid 1\n[2] error:\nValueError: two is too many\n[3]\ndid 3"


async def test_parallelize_bounds_how_many_run_and_how_many_may_be_asked_for() -> None:
    running, most = 0, 0

    async def work(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.wait_all_tasks_blocked()
        running -= 1
        return number

    made = parallelize(tool(work), name="many", limit=2, max_calls=4)

    assert not (await made.execute({"calls": [{"number": 1}] * 4})).is_error
    assert most == 2
    assert (await made.execute({"calls": [{"number": 1}] * 5})).is_error
    assert (await made.execute({"calls": []})).is_error


@pytest.mark.requirement("C28")
async def test_many_calls_in_one_take_part_in_the_bound_of_their_server() -> None:
    server = Busy([spec("work", server="files"), spec("other", server="files")])
    many = tool_call("parallel_work", {"calls": [{}] * 6})
    for name in ("work", "other"):
        made = parallelize(Tool(spec("work", server="files"), server))
        agent = Agent(
            ScriptedModel([[many, tool_call(name), tool_call(name)], "done"]),
            tools=[made, server],
            limits=Limits(parallel_per_server=2),
        )
        await agent.send("go")
        assert (server.most, len(server.calls)) == (2, 8)
        server.most, server.calls = 0, []


class Busy(Scripted):
    """A server that notes how many of its calls run at once."""

    running = most = 0

    async def call(self, call: ToolCall, ctx: CallContext) -> ToolResult:
        self.running += 1
        self.most = max(self.most, self.running)
        await anyio.wait_all_tasks_blocked()
        self.running -= 1
        return await super().call(call, ctx)


async def test_parallelize_is_an_error_only_when_every_call_is_one() -> None:
    def work(number: int) -> int:
        raise ValueError(f"not {number}")

    result = await parallelize(tool(work)).execute({"calls": [{"number": 1}, {"number": 2}]})

    assert result.is_error
    assert "all 2 calls failed; the first: ValueError: not 1" in result.require_error().message


async def test_an_id_that_calls_of_two_runs_have_allows_neither_and_the_event_does() -> None:
    ran: list[str] = []

    def act(who: str) -> None:
        ran.append(who)

    def calls(who: str) -> ToolCallPart:
        return ToolCallPart(id="call_0", name="act", arguments={"who": who})

    def confirm(call: ToolCallPart, tool: ToolSpec) -> bool | None:
        return None if call.name == "act" else True

    child = Agent(ScriptedModel([calls("child"), "done"]), name="child", tools=[act], confirm="always")
    model = ScriptedModel([[tool_call("agent_child", {"message": "go"}), calls("parent")], "done"])
    run = Agent(model, tools=[act, child.as_tool()], confirm=confirm).send("go")
    asked: dict[str, ApprovalRequested] = {}

    async for event in run:
        if isinstance(event, ApprovalRequested):
            asked[event.call.arguments["who"]] = event
            if len(asked) == 2:
                with pytest.raises(ValueError, match="give the event"):
                    run.approve("call_0")
                assert run.deny(asked["parent"])
                assert run.approve("call_0")

    assert ran == ["child"]


async def test_nobody_is_asked_for_an_agent_that_a_run_calls_which_nobody_attends() -> None:
    def act() -> str:
        return "done"

    child = Agent(ScriptedModel([tool_call("act"), "denied"]), name="child", tools=[act], confirm="always")
    agent = Agent(ScriptedModel([tool_call("agent_child", {"message": "go"}), "done"]), tools=[child.as_tool()])
    run = agent.send("go", attended=False)

    assert not [event async for event in run if isinstance(event, ApprovalRequested)]

    assert (await run).text == "done"


async def test_a_sequential_tool_stays_so_in_one_that_makes_many_calls_of_it() -> None:
    running, most = 0, 0

    async def turn(page: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.wait_all_tasks_blocked()
        running -= 1

    many = parallelize(tool(turn, annotations={"sequential": True}))

    assert not (await many.execute({"calls": [{"page": 1}, {"page": 2}]})).is_error

    assert most == 1


def allow(call: ToolCallPart, tool: ToolSpec) -> bool:
    return True


def deny(call: ToolCallPart, tool: ToolSpec) -> bool:
    return False


def ask_about_rm(call: ToolCallPart, tool: ToolSpec) -> bool | None:
    return None if tool.name == "rm" else True


def remover(done: list[str], confirm: Any = None) -> Agent:
    """Return an agent that removes a file, whatever it is asked."""

    @tool
    def rm(path: str) -> str:
        """Remove a file."""
        done.append(path)
        return "removed"

    return Agent(ScriptedModel([tool_call("rm", {"path": "a"}), "done"]), name="child", tools=[rm], confirm=confirm)


def above(child: Agent, name: str = "parent", **options: Any) -> Agent:
    call = tool_call(child.as_tool().name, {"message": "clean up"})
    return Agent(ScriptedModel([call, "over"]), name=name, tools=[child.as_tool()], **options)


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("confirm", [None, "never", allow])
async def test_a_policy_that_denies_a_call_denies_it_to_the_agents_below(confirm: Any, deep: bool) -> None:
    done: list[str] = []
    asked: list[str] = []

    async def policy(call: ToolCallPart, tool: ToolSpec) -> bool:
        asked.append(tool.name)
        return tool.name != "rm"

    child = remover(done, confirm)
    agent = above(above(child, "middle"), confirm=policy) if deep else above(child, confirm=policy)
    result = await agent.run("go")

    assert done == []
    assert asked[-1] == "rm"
    assert result.status == "completed"


async def test_a_policy_that_allows_a_call_leaves_it_to_the_policy_of_the_agent_below() -> None:
    done: list[str] = []

    await above(remover(done, deny), confirm=allow).run("go")
    assert done == []

    await above(remover(done), confirm=allow).run("go")
    assert done == ["a"]


@pytest.mark.parametrize("confirm", ["destructive", "always", ask_about_rm])
@pytest.mark.parametrize("approve", [True, False])
async def test_a_person_is_asked_about_a_call_below_where_the_policy_above_wants_it(
    confirm: Any, approve: bool
) -> None:
    done: list[str] = []
    asked: list[str] = []
    run = above(remover(done), confirm=confirm).send("go")
    async for event in run:
        if isinstance(event, ApprovalRequested):
            asked.append(event.tool.name)
            decide = run.approve if approve or event.tool.name != "rm" else run.deny
            assert decide(event)

    assert asked[-1] == "rm"
    assert done == (["a"] if approve else [])


@pytest.mark.parametrize("remember", ["run", "agent"])
async def test_a_person_is_asked_where_the_policy_above_wants_it_though_the_policy_below_allowed_the_tool_for_good(
    remember: Any,
) -> None:
    done: list[str] = []

    @tool
    def rm(path: str) -> str:
        """Remove a file."""
        done.append(path)
        return "removed"

    def about_root(call: ToolCallPart, tool: ToolSpec) -> bool | None:
        return None if call.arguments.get("path") == "/" else True

    calls = [tool_call("rm", {"path": path}) for path in ("a", "/")]
    remembered = Approval(approved=True, remember=remember)
    child = Agent(ScriptedModel([*calls, "done"]), name="child", tools=[rm], confirm=lambda call, tool: remembered)
    asked: list[Any] = []
    run = above(child, confirm=about_root).send("go")
    async for event in run:
        if isinstance(event, ApprovalRequested):
            asked.append(event.call.arguments)
            assert run.deny(event)

    assert asked == [{"path": "/"}]
    assert done == ["a"]


@pytest.mark.requirement("R85")
@pytest.mark.slow
@pytest.mark.parametrize("token", ["", "key-of-ann-0123456789"])
@pytest.mark.parametrize("protocol", ["2025-11-25", "2026-07-28"])
async def test_a_conversation_of_clients_that_cannot_be_told_apart_is_an_error_and_never_forgotten_in_silence(
    protocol: str, token: str
) -> None:
    served = create_mcp_server(
        name="desk", version="1", tools=[worker().as_tool(keep_conversation=True, name="kept"), worker().as_tool()]
    )
    auth = BearerAuth(tokens={token: "ann"}) if token else None

    async with served_http(served, auth=auth) as url:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with connect_mcp({"url": url, "protocol": protocol, "headers": headers}) as client:
            results = [await client.call_tool("kept", {"message": text}) for text in ("a", "b")]
            fresh = await client.call_tool("agent_worker", {"message": "c"})

    assert fresh.text == "c"
    if protocol == "2026-07-28" and not token:
        assert all(result.is_error and "cannot distinguish its clients" in result.text for result in results)
    else:
        assert [result.text for result in results] == ["a", "a / b"]
