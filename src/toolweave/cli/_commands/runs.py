"""`toolweave runs`: the runs of a store, and starting runs that outlive the terminal."""

from __future__ import annotations

import shlex
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from toolweave._json_types import Json, JsonObject
from toolweave.cli._chat.options import AGENT, AgentTarget, ChatOptions, DeleteOption, StoreOption, chat_options
from toolweave.cli._chat.stores import backend_named
from toolweave.cli._command import Command, CommandGroup, Option, Positional
from toolweave.cli._exit_codes import CommandError, ExitCode
from toolweave.cli._options import JsonOption, given_options
from toolweave.cli._runner import run
from toolweave.cli._screen import answer, answer_json, note, show
from toolweave.errors import RunError

if TYPE_CHECKING:
    from toolweave.agent import RunInfo, RunRecord, RunStatuses, WaitingCall
    from toolweave.state import Store

_HELP = "Start, list, resume, stop, answer and delete runs of agents."
_EXAMPLES = {
    "spawn": """
toolweave runs spawn "Summarise the notes" --config mcp.json
toolweave runs spawn '/call time_get_current_time {"timezone": "UTC"}' --model command
toolweave runs spawn "Summarise the notes" --backend redis://localhost:6379/0 --agent researcher
""",
    "resume": """
toolweave runs resume 496e77
toolweave runs resume 496e77 --config mcp.json --model anthropic:claude-sonnet-4-5
""",
    "list": """
toolweave runs list
toolweave runs list --status interrupted --json
toolweave runs list --store redis://localhost:6379/0
""",
    "show": """
toolweave runs show 496e77
""",
    "approve": """
toolweave runs approve 496e77 call_1
toolweave runs approve 496e77 call_1 --remember run
toolweave runs approve 496e77 call_1 --backend redis://localhost:6379/0
""",
    "deny": """
toolweave runs deny 496e77 call_1 --reason "not this file"
""",
    "answer": """
toolweave runs answer 496e77 call_1 city=Oslo days:=3
toolweave runs answer 496e77 call_1 --accept
toolweave runs answer 496e77 call_1 --decline --backend redis://localhost:6379/0
""",
    "cancel": """
toolweave runs cancel 496e77
""",
    "delete": """
toolweave runs delete 496e77
toolweave runs delete --older-than 7 --yes
""",
}

_SHORT = 8
_PROMPT = 60
RunId = Annotated[str, Positional("RUN", help="The run's id, or its first characters.")]
CallId = Annotated[str, Positional("CALL", help="The call's id, or its first characters.")]
ReasonOption = Annotated[str | None, Option("--reason", metavar="TEXT", help="The reason for the answer.")]
BackendOption = Annotated[
    str | None, Option("--backend", metavar="URL", help="Where the run is, and its workers; else TOOLWEAVE_BACKEND.")
]


class RunFilter(StrEnum):
    """The runs to list."""

    ALL = "all"
    ACTIVE = "active"
    INTERRUPTED = "interrupted"
    WAITING = "waiting"


class Remember(StrEnum):
    """The runs that an approval is for."""

    RUN = "run"
    AGENT = "agent"


def spawn(
    options: ChatOptions,
    message: Annotated[str, Positional("MESSAGE", help="The task for the model.")],
    backend: Annotated[
        str | None,
        Option("--backend", metavar="URL", help="Give it to the workers there; else to those of TOOLWEAVE_BACKEND."),
    ] = None,
    agent: Annotated[
        str | None, Option("--agent", metavar="NAME", help="With --backend: whose run; else the chat agent's.")
    ] = None,
    key: Annotated[
        str | None,
        Option("--key", metavar="KEY", help="With --backend: the same key is the same run, begun once."),
    ] = None,
    as_json: JsonOption = False,
) -> ExitCode:
    """Start a run that continues without this terminal.

    Prints its id; `toolweave runs show` shows its result. It runs in a separate process. If a call needs an approval,
    the process ends and the run waits: use `toolweave runs approve`, then `toolweave runs resume`.
    With --backend, or a TOOLWEAVE_BACKEND with workers, a worker executes it, with the worker's model and servers,
    and continues after the answer.
    """
    if not message.strip():
        raise CommandError("the message is empty", hint="write the task for the model behind `spawn`")
    if backend is not None or options.store is None:
        url = backend_named(backend)
    else:
        url = None
    if url is not None:
        _check_submitted(options)
    elif agent is not None or key is not None:
        raise CommandError(f"{'--agent' if agent else '--key'} goes with --backend: workers have agents by name")
    elif options.store is not None and options.store.startswith("memory:"):
        raise CommandError("--store memory:// is gone with its process: the run could not be found again")

    async def body() -> ExitCode:
        from toolweave.cli._chat.spawn import spawn as begin
        from toolweave.cli._chat.spawn import submit
        from toolweave.cli._chat.startup import (
            choose_model,  # imports are late: --help imports this module
            servers_of,
        )

        if url is not None:
            run_id = await submit(url, agent or AGENT, message, session=options.resume, key=key)
        else:
            await servers_of(options)  # a mistake is better reported now than found in the store later
            await choose_model(options.model)
            run_id = await begin(options, message)
        if as_json:
            answer_json({"run_id": run_id})
        else:
            answer(run_id)
            note(f"toolweave runs show {run_id[:_SHORT]} shows its result")
        return ExitCode.OK

    return run(body, verbose=options.verbose)


def _check_submitted(options: ChatOptions) -> None:
    """Reject options that each worker has itself."""
    if options.store is not None:
        raise CommandError("--store and --backend exclude each other: a backend keeps its runs itself")
    given = given_options(options, ChatOptions, but=("resume", "verbose", "store"))
    if given:
        raise CommandError(
            f"{given[0]} does not go to workers: each has its own model and servers",
            hint="--store FILE begins the run in a process of this machine, with all of these options",
        )


def resume(options: AgentTarget, run_id: RunId, store: StoreOption = None, as_json: JsonOption = False) -> ExitCode:
    """Start the process of a spawned run again, after the answers that it waited for or after its process died.

    Repeat the options of `spawn`: the store does not have the servers, the model and --confirm. Finished steps are
    not repeated. Exits with 1 if the run has ended, is running, or waits for an answer.
    """

    async def body(_: Store, statuses: RunStatuses) -> ExitCode:
        from toolweave.cli._chat.spawn import start_process  # late, as above
        from toolweave.cli._chat.startup import choose_model, servers_of

        chat = chat_options(options, store=store)
        one = await _found(statuses, run_id)
        # Before the process is started, whose error nobody would see.
        await _check_resumable(statuses, one)
        await servers_of(chat)  # as for spawn
        await choose_model(chat.model)
        start_process(chat, one.run_id)
        if as_json:
            answer_json({"run_id": one.run_id})
        else:
            answer(one.run_id)
            note(f"toolweave runs show {one.run_id[:_SHORT]} shows its result")
        return ExitCode.OK

    return _with_store(store, body)


async def _check_resumable(statuses: RunStatuses, one: RunInfo) -> None:
    """Reject a run that this command cannot resume now."""
    run = one.run_id
    waiting = await statuses.waiting(one.run_id)
    if one.record.agent != AGENT:
        raise CommandError(f"{run} is a run of agent {one.record.agent!r}, which its own program resumes: Agent.resume")
    if one.status not in ("pending", "interrupted", "waiting"):
        if one.status == "running":
            said = "runs already"
        else:
            said = f"has ended: its status is {one.status}"
        raise CommandError(f"{run} {said}", code=ExitCode.TOOL_ERROR)
    if waiting:
        calls = ", ".join(call.call_id for call in waiting)
        hint = f"toolweave runs show {run[:_SHORT]} shows them, and how they are answered"
        raise CommandError(f"{run} waits for answers: {calls}", hint=hint, code=ExitCode.TOOL_ERROR)


def list_runs(
    which: Annotated[RunFilter, Option("--status", help="The runs to list, by their status.")] = RunFilter.ALL,
    limit: Annotated[int, Option("--limit", "-n", minimum=1, help="At most so many, the newest.")] = 20,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> ExitCode:
    """List the latest runs."""

    async def body(_: Store, statuses: RunStatuses) -> ExitCode:
        if which is RunFilter.ALL:
            found = await statuses.recent(limit)
        else:
            some = {
                RunFilter.ACTIVE: statuses.active,
                RunFilter.INTERRUPTED: statuses.interrupted,
                RunFilter.WAITING: statuses.waiting_runs,
            }
            # These lists have the oldest first.
            found = list(reversed(await some[which]()))[:limit]
        if as_json:
            answer_json({"runs": list(map(_run_json, found))})
        elif found:
            from toolweave.cli._render.views import table  # late, as above

            rows = [
                (one.run_id[:_SHORT], one.status, one.record.agent, _when(one), _one_line(one.record.prompt))
                for one in found
            ]
            show(table(["run", "status", "agent", "begun", "message"], rows))
        else:
            note("there are no such runs")
        return ExitCode.OK

    return _with_store(store, body)


def show_run(run_id: RunId, store: StoreOption = None, as_json: JsonOption = False) -> ExitCode:
    """Show one run: its state, its message, its result, and the runs that it started."""

    async def body(kept: Store, statuses: RunStatuses) -> ExitCode:
        from toolweave.agent import run_tree  # late, as above
        from toolweave.cli._render.waiting_calls import waiting_lines

        one = await _found(statuses, run_id)
        tree = await run_tree(kept, one.run_id)
        if tree is None:
            below = []
        else:
            below = [(level, child) for level, child in tree.walk() if level]
        waiting = await statuses.waiting(one.run_id)
        if as_json:
            children = [_run_json(child) for _, child in below]
            answer_json({**_run_json(one), "children": children, "waiting": [call.shown() for call in waiting]})
            return ExitCode.OK
        record = one.record
        parts = [f"{record.steps} steps", f"{record.usage.input_tokens + record.usage.output_tokens} tokens"]
        if record.stop_reason not in (None, "end"):
            reason = f" ({record.stop_reason})"
        else:
            reason = ""
        note(f"{one.run_id}  {one.status}{reason}  {_when(one)}  {', '.join(parts)}")
        note(f"> {record.prompt}")
        for level, child in below:
            note(f"{'  ' * level}{child.run_id[:_SHORT]}  {child.status}  {_one_line(child.record.prompt)}")
        for call in waiting:
            for line in waiting_lines(call, one.run_id[:_SHORT]):
                note(line)
        if record.error is not None:
            note(f"error: {record.error}")
        if record.text:
            answer(record.text)
        return ExitCode.OK

    return _with_store(store, body)


def cancel(run_id: RunId, store: StoreOption = None, as_json: JsonOption = False) -> ExitCode:
    """Stop a run and all that it started, wherever they run.

    A run on another machine is notified within seconds. Exits with 1 if it has already ended.
    """

    async def body(_: Store, statuses: RunStatuses) -> ExitCode:
        one = await _found(statuses, run_id)
        cancelled = await statuses.cancel(one.run_id)
        if as_json:
            answer_json({"run_id": one.run_id, "cancelled": cancelled})
        else:
            note(f"{one.run_id} {'is asked to stop' if cancelled else f'has ended already: {one.status}'}")
        if cancelled:
            return ExitCode.OK
        return ExitCode.TOOL_ERROR

    return _with_store(store, body)


def delete(
    run_ids: Annotated[tuple[str, ...], Positional("RUN", help="The id of a run, or its first characters.")] = (),
    older_than: Annotated[
        float | None,
        Option("--older-than", metavar="DAYS", minimum=0, help="Also all runs that ended longer ago."),
    ] = None,
    yes: DeleteOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> ExitCode:
    """Permanently delete runs that have ended, and all that they started.

    What they added to the conversation of a session stays there: `toolweave sessions delete` deletes it. Exits with 1
    if one of the runs has not ended.
    """
    if not run_ids and older_than is None:
        raise CommandError("no run is named", hint="RUN ..., or --older-than DAYS")

    async def body(kept: Store, statuses: RunStatuses) -> ExitCode:
        from toolweave.cli._chat.deletion import delete_runs, ended_before  # late, as above

        chosen = [(await _found(statuses, one)).run_id for one in run_ids]
        if older_than is not None:
            chosen += await ended_before(statuses, time.time() - older_than * 86_400)
        return await delete_runs(kept, statuses, chosen, yes=yes, as_json=as_json)

    return _with_store(store, body)


def approve(
    run_id: RunId,
    call_id: CallId,
    remember: Annotated[
        Remember | None,
        Option("--remember", help="Allow the tool without asking from now on, to this run or to all of its agent."),
    ] = None,
    reason: ReasonOption = None,
    store: StoreOption = None,
    backend: BackendOption = None,
    as_json: JsonOption = False,
) -> ExitCode:
    """Approve a waiting tool call of a run; `toolweave runs show RUN` shows all of it.

    After the last answer a worker of the backend continues the run; without workers `toolweave runs resume` does.
    Exits with 1 if no such call waits.
    """

    async def answer_call(statuses: RunStatuses, run: str, call: str) -> bool:
        return await statuses.approve(run, call, remember=None if remember is None else remember.value, reason=reason)

    return _answered(run_id, call_id, answer_call, store, backend, as_json=as_json)


def deny(
    run_id: RunId,
    call_id: CallId,
    reason: ReasonOption = None,
    store: StoreOption = None,
    backend: BackendOption = None,
    as_json: JsonOption = False,
) -> ExitCode:
    """Deny a waiting tool call of a run; the model reads the reason and continues.

    Exits with 1 if no such call waits.
    """

    async def answer_call(statuses: RunStatuses, run: str, call: str) -> bool:
        return await statuses.deny(run, call, reason=reason)

    return _answered(run_id, call_id, answer_call, store, backend, as_json=as_json)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerOptions:
    """The options that say how a question is answered; each attribute is an option."""

    accept: Annotated[
        bool, Option("--accept", help="Accept, with the values and the form's defaults, or the page after a visit.")
    ] = False
    decline: Annotated[bool, Option("--decline", help="Say no.")] = False
    cancel: Annotated[bool, Option("--cancel", help="Dismiss the question, without a yes or a no.")] = False
    json_values: Annotated[
        str | None, Option("--json-values", metavar="JSON", help="All values of the form as one JSON object.")
    ] = None


def answer_question(
    run_id: RunId,
    call_id: CallId,
    how: AnswerOptions,
    values: Annotated[
        tuple[str, ...],
        Positional(
            "FIELDS", help="The form's values: key=value, key:=JSON, key=@FILE, @FILE, or - for standard input."
        ),
    ] = (),
    store: StoreOption = None,
    backend: BackendOption = None,
    as_json: JsonOption = False,
) -> ExitCode:
    """Answer a server's question to a waiting run; `toolweave runs show RUN` shows the question.

    Values are converted to the types of the form. Giving values accepts the form. Never send a secret in a form: the
    answer is stored and sent to the server. Exits with 1 if no such question waits, or the values do not fit.
    """
    from toolweave.cli._arguments import fit_arguments, read_arguments  # late, as below
    from toolweave.cli._stdin import read_all

    given = read_arguments(values, json_args=how.json_values, stdin=read_all)
    said = [name for name in ("accept", "decline", "cancel") if getattr(how, name)]
    if len(said) > 1:
        raise CommandError(f"--{said[0]} and --{said[1]} exclude each other")
    if not said and not given:
        raise CommandError("the answer is missing", hint="FIELD=VALUE ..., --accept, --decline or --cancel")
    if given and said and said != ["accept"]:
        raise CommandError(f"--{said[0]} takes no values")

    async def give(statuses: RunStatuses, run: str, call: str) -> bool:
        from toolweave.protocol.client_requests import ElicitationResult

        if said and said != ["accept"]:
            return await statuses.answer(run, call, getattr(ElicitationResult, said[0])())
        asked = [one for one in await statuses.waiting(run) if call in (one.call_id, one.of_call)]
        question = asked[0].question if len(asked) == 1 else None
        schema: JsonObject = {} if question is None else question.schema
        return await statuses.answer(run, call, ElicitationResult.accept(fit_arguments(given, schema)))

    return _answered(run_id, call_id, give, store, backend, as_json=as_json)


def _when_it_continues(record: RunRecord, store: str | None) -> str:
    """Return when a run continues that was answered in its store alone."""
    if record.by_workers:
        return "when one of its workers finds the answer in the store: at once if any is running"
    if store is None:
        place = ""
    else:
        place = f" --store {shlex.quote(store)}"
    resume = f"with `toolweave runs resume {record.run_id[:_SHORT]}{place}`"
    if record.agent == AGENT:
        when = resume
    else:
        when = "when its program resumes it"
    return f"{when}: it has no workers"


def _answered(
    run_id: str,
    call_id: str,
    answer_call: Callable[[RunStatuses, str, str], Awaitable[bool]],
    store: str | None,
    backend: str | None,
    *,
    as_json: bool,
) -> ExitCode:
    if store is not None and backend is not None:
        raise CommandError("--store and --backend exclude each other: a backend keeps its runs itself")
    url = None if store is not None else backend_named(backend)

    async def body(kept: Store, statuses: RunStatuses) -> ExitCode:
        one = await _found(statuses, run_id)
        waiting = await statuses.waiting(one.run_id)
        call = await _named_call(kept, one.run_id, waiting, call_id)
        try:
            goes_on = await answer_call(statuses, one.run_id, call)
        except RunError as error:
            raise CommandError(str(error), code=ExitCode.TOOL_ERROR) from None
        if as_json:
            answer_json({"run_id": one.run_id, "goes_on": goes_on})
            return ExitCode.OK
        if all(call not in (other.call_id, other.of_call) for other in waiting):
            note(f"call {call!r} has this answer already")
        if not goes_on:
            note(f"{one.run_id} waits for answers to other calls")
        elif url is not None:
            note(f"{one.run_id} continues")
        else:
            note(f"{one.run_id} continues {_when_it_continues(one.record, store)}")
        return ExitCode.OK

    if url is None:
        return _with_store(store, body)
    return _with_backend(url, body)


async def _named_call(kept: Store, run_id: str, waiting: Sequence[WaitingCall], call_id: str) -> str:
    """Return the id of a call: an id that the run's journal knows is that call's, else the beginning of one that waits.

    Raises:
        CommandError: The id is empty, or the beginning of several.
    """
    from toolweave.agent._stored.waiting import known_calls  # late, as above

    shows = f"toolweave runs show {run_id[:_SHORT]} lists those that wait"
    if not call_id.strip():
        raise CommandError("the id of the call is empty", hint=shows)
    if any(call_id == one.of_call for one in waiting) or call_id in await known_calls(kept, run_id):
        return call_id
    begun = [one.call_id for one in waiting if one.call_id.startswith(call_id)]
    if len(begun) > 1:
        raise CommandError(f"{len(begun)} calls that wait begin with {call_id!r}", hint=shows)
    if begun:
        return begun[0]
    return call_id


def _with_backend(url: str, body: Callable[[Store, RunStatuses], Awaitable[ExitCode]]) -> ExitCode:
    async def opened() -> ExitCode:
        from toolweave.agent import RunStatuses  # late, as above
        from toolweave.cli._chat.stores import opened_backend

        async with opened_backend(url) as backend:
            return await body(backend.store, RunStatuses(backend.store, queue=backend.queue))

    return run(opened)


def _with_store(place: str | None, body: Callable[[Store, RunStatuses], Awaitable[ExitCode]]) -> ExitCode:
    async def opened() -> ExitCode:
        from toolweave.agent import RunStatuses  # late, as above
        from toolweave.cli._chat.stores import opened_store

        async with opened_store(place, existing=True) as store:
            return await body(store, RunStatuses(store))

    return run(opened)


async def _found(statuses: RunStatuses, run_id: str) -> RunInfo:
    """Return the run with this id, or with an id that starts with it."""
    one = await statuses.get(run_id)
    if one is not None:
        return one
    begun: Sequence[RunInfo] = ()
    if run_id:
        begun = await statuses.find(run_id, 100)
    if len(begun) == 1:
        return begun[0]
    if begun:
        raise CommandError(f"{len(begun)} runs begin with {run_id!r}", hint="write more of the id")
    raise CommandError(f"unknown run {run_id!r}", hint="toolweave runs list shows the known ones")


def _run_json(one: RunInfo) -> Json:
    record = asdict(one.record)
    record.pop("revision", None)
    return {**record, "status": one.status}


def _when(one: RunInfo) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(one.record.created_at))


def _one_line(text: str) -> str:
    from toolweave.cli._render.text import clip  # late, as above

    return clip(" ".join(text.split()), _PROMPT)


COMMAND = CommandGroup(
    _HELP,
    {
        "spawn": Command(spawn, examples=_EXAMPLES["spawn"]),
        "resume": Command(resume, examples=_EXAMPLES["resume"]),
        "list": Command(list_runs, examples=_EXAMPLES["list"]),
        "show": Command(show_run, examples=_EXAMPLES["show"]),
        "approve": Command(approve, examples=_EXAMPLES["approve"]),
        "deny": Command(deny, examples=_EXAMPLES["deny"]),
        "answer": Command(answer_question, examples=_EXAMPLES["answer"]),
        "cancel": Command(cancel, examples=_EXAMPLES["cancel"]),
        "delete": Command(delete, examples=_EXAMPLES["delete"]),
    },
)
