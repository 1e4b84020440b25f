"""`toolweave sessions`: the conversations of a store, and their end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from toolweave._text import counted
from toolweave.cli._chat.options import AGENT, DeleteOption, StoreOption
from toolweave.cli._command import Command, CommandGroup, Option, Positional
from toolweave.cli._exit_codes import CommandError, ExitCode
from toolweave.cli._options import JsonOption
from toolweave.cli._runner import run
from toolweave.cli._screen import answer_json, note, show
from toolweave.errors import RunError

if TYPE_CHECKING:
    from toolweave.agent import SessionInfo

_HELP = "List and delete the conversations of agents."
_EXAMPLES = {
    "list": """
toolweave sessions list
toolweave sessions list --store redis://localhost:6379/0 --json
""",
    "delete": """
toolweave sessions delete holiday
toolweave sessions delete user-17 --agent researcher --store redis://localhost:6379/0 --yes
""",
}


def list_sessions(store: StoreOption = None, as_json: JsonOption = False) -> ExitCode:
    """List the stored conversations, by agent and session."""

    async def body() -> ExitCode:
        from toolweave.agent import RunStatuses  # imports are late: --help imports this module
        from toolweave.cli._chat.stores import opened_store

        async with opened_store(store, existing=True) as kept:
            found = await RunStatuses(kept).sessions()
        _show(found, as_json=as_json)
        return ExitCode.OK

    return run(body)


def _show(found: list[SessionInfo], *, as_json: bool) -> None:
    if as_json:
        sessions = [{"agent": one.agent, "session": one.session, "messages": one.messages} for one in found]
        answer_json({"sessions": sessions})
    elif found:
        from toolweave.cli._render.views import table  # late, as above

        rows = [(one.agent, one.session, str(one.messages)) for one in found]
        show(table(["agent", "session", "messages"], rows))
    else:
        note("there are no sessions")


def delete_session(
    session: Annotated[str, Positional("SESSION", help="The session's name.")],
    agent: Annotated[str, Option("--agent", metavar="NAME", help="Whose session.")] = AGENT,
    yes: DeleteOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> ExitCode:
    """Permanently delete the conversation of a session and its runs.

    Exits with 1 if one of its runs has not ended, or the session does not exist.
    """

    async def body() -> ExitCode:
        from toolweave.agent import RunStatuses  # late, as above
        from toolweave.cli._chat.deletion import confirm, erase_traces
        from toolweave.cli._chat.stores import opened_store

        async with opened_store(store, existing=True) as kept:
            statuses = RunStatuses(kept)
            is_known = any((one.agent, one.session) == (agent, session) for one in await statuses.sessions())
            await confirm(f"session {session!r} of agent {agent!r}, and its runs", yes=yes)
            try:
                deleted = await statuses.delete_session(agent, session)
            except RunError as error:
                raise CommandError(str(error), code=ExitCode.TOOL_ERROR) from None
            if not is_known and not deleted:
                hint = "toolweave sessions list shows the known ones"
                raise CommandError(f"agent {agent!r} has no session {session!r}", hint=hint, code=ExitCode.TOOL_ERROR)
            await erase_traces(kept)
        if as_json:
            answer_json({"agent": agent, "session": session, "deleted_runs": deleted})
        else:
            note(f"deleted session {session!r} with {counted(deleted, 'run')}")
        return ExitCode.OK

    return run(body)


COMMAND = CommandGroup(
    _HELP,
    {
        "list": Command(list_sessions, examples=_EXAMPLES["list"]),
        "delete": Command(delete_session, examples=_EXAMPLES["delete"]),
    },
)
