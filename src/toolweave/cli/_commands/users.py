"""`toolweave users`: erases the data of a user."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from toolweave._text import counted
from toolweave.cli._chat.options import DeleteOption, StoreOption
from toolweave.cli._command import Command, CommandGroup, Option, Positional
from toolweave.cli._exit_codes import CommandError, ExitCode
from toolweave.cli._options import JsonOption
from toolweave.cli._runner import run
from toolweave.cli._screen import answer_json, note
from toolweave.errors import RunError

if TYPE_CHECKING:
    from toolweave.compose import UserDataCounts

_HELP = "Erase the data of a user."
_EXAMPLES = """
toolweave users erase user-17
toolweave users erase user-17 --store redis://localhost:6379/0 --audit audit.jsonl --yes --json
"""


def erase(
    principal: Annotated[str, Positional("PRINCIPAL", help="The user: the subject of their tokens, or their name.")],
    audit: Annotated[
        tuple[str, ...],
        Option("--audit", metavar="FILE", help="Also erase their lines in this audit log; may be repeated."),
    ] = (),
    yes: DeleteOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> ExitCode:
    """Permanently erase a user's conversations, runs, tasks, sessions, grants, limits and sign-ins.

    A conversation is theirs if its session is named PRINCIPAL, or begins with 'PRINCIPAL/' or 'PRINCIPAL:'.

    Audit logs stay as they are unless you name them: you may have to keep them. API keys are in your config: remove
    them there. A gateway or worker that is running may have tokens in its memory: restart it.

    Tokens in the store and sessions at servers are found only by the whole principal. If only the subject is known,
    the command names the collections that may have more: give PRINCIPAL as '["CLIENT","ISSUER","SUBJECT"]'.

    Exits with 1 if one of their runs has not ended, or other documents in the store still name them.
    """

    async def body() -> ExitCode:
        from toolweave.cli._chat.deletion import confirm  # imports are late: --help imports this module
        from toolweave.cli._chat.stores import opened_store
        from toolweave.compose import UserData
        from toolweave.oauth import default_token_store

        async with opened_store(store, existing=True) as kept:
            data = UserData(kept, principal, token_stores=[default_token_store()], audit_logs=audit)
            found = await data.find()
            if found.total:
                await confirm(f"{_listed(found)} of {principal!r}", yes=yes)
            try:
                erased = await data.erase()
            except RunError as error:
                hint = f"toolweave runs cancel {error.run_id[:8]} ends it"
                raise CommandError(str(error), hint=hint, code=ExitCode.TOOL_ERROR) from None
        if as_json:
            answer_json({"principal": principal, **asdict(erased)})
        else:
            note(f"erased {_listed(erased)}")
        if not as_json:
            for collection in erased.unsearched:
                note(f"warning: {collection!r} may have more: give the whole principal, with client and issuer")
        if not erased.mentions:
            return ExitCode.OK
        if not as_json:
            for collection, number in erased.mentions.items():
                named = f"{counted(number, 'other document')} in {collection!r}"
                note(f"warning: the store still names {principal!r} in {named}")
        return ExitCode.TOOL_ERROR

    return run(body)


def _listed(counts: UserDataCounts) -> str:
    parts = [
        counted(counts.sessions, "conversation"),
        counted(counts.runs, "run"),
        counted(counts.documents, "document"),
        counted(counts.sign_ins, "sign-in"),
        counted(counts.audit_lines, "audit line"),
    ]
    return ", ".join(parts)


COMMAND = CommandGroup(_HELP, {"erase": Command(erase, examples=_EXAMPLES)})
