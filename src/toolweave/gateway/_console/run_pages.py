"""The pages about runs of agents: the last ones, each one's details, and the answers that people give.

A run that waits has calls that need a yes, or questions of servers; all of their texts are untrusted.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from toolweave._text import counted
from toolweave.agent import RunInfo, WaitingCall
from toolweave.errors import RunError
from toolweave.gateway._console.forms import FormField, fields_of, read_fields, read_json
from toolweave.gateway._console.rendering import ConsolePages
from toolweave.gateway._console.requests import ConsolePage, ConsoleRefusal, ConsoleReply, ConsoleRequest
from toolweave.gateway._observe.runs import StoredRuns
from toolweave.protocol.client_requests import ElicitationResult
from toolweave.protocol.uris import web_address_problem
from toolweave.serve._http.asgi import Receive

_LOOK_SECONDS = 5
_MAX_SHOWN = 100
_GOOD = frozenset({"completed"})
_BAD = frozenset({"failed", "interrupted", "unreadable"})
_REMEMBER: tuple[Literal["run"], Literal["agent"]] = ("run", "agent")


class WaitingView(NamedTuple):
    """A call that waits, and the form to answer it.

    Attributes:
        call: The call.
        number: Its position on the page, from 1.
        fields: The fields of a question's form; None where it can be given as JSON only.
        values: The text in each field.
        as_json: The text in the field for the whole form.
        wrong: The errors of the sent form, by field.
        page: The address to visit, or "".
    """

    call: WaitingCall
    number: int
    fields: Sequence[FormField] | None
    values: Mapping[str, str]
    as_json: str
    wrong: Mapping[str, str]
    page: str


class RunPages:
    """The pages about runs.

    Args:
        runs: The runs.
        pages: Renders them.
    """

    def __init__(self, runs: StoredRuns, pages: ConsolePages) -> None:
        self._runs = runs
        self._pages = pages
        self.shown: Mapping[str, ConsolePage] = {"/runs": self.runs, "/run": self.run}
        self.changing: Mapping[str, ConsolePage] = {
            "/run/approve": self.approve,
            "/run/deny": self.deny,
            "/run/answer": self.answer,
            "/run/cancel": self.cancel,
        }

    async def runs(self, asked: ConsoleRequest, receive: Receive) -> ConsoleReply:
        """Show the runs that were begun last, or those that wait."""
        only = asked.query.get("only", "")
        statuses = self._runs.statuses
        found = await (statuses.waiting_runs() if only == "waiting" else statuses.recent(_MAX_SHOWN))
        if only == "waiting":
            shown = list(reversed(found))[:_MAX_SHOWN]
        else:
            shown = list(found)
        rows = [(one, _tone(one), await self._waiting(one)) for one in shown]
        waiting = sum(one.status == "waiting" for one in shown)
        return self._pages.live(
            asked,
            "runs.html",
            summary=f"{counted(len(shown), 'run')}, {waiting} waiting for a person",
            seconds=_LOOK_SECONDS,
            rows=rows,
            only=only,
        )

    async def run(self, asked: ConsoleRequest, receive: Receive) -> ConsoleReply:
        """Show one run, with the calls that wait."""
        return await self._run_page(asked, asked.query.get("id", ""))

    async def approve(self, asked: ConsoleRequest, receive: Receive) -> ConsoleReply:
        """Allow a call."""
        remember = asked.form.get("remember", "")
        # Any other value remembers nothing, which is the careful choice.
        kept = remember if remember in _REMEMBER else None
        return await self._reported(asked, self._runs.statuses.approve(*_call_of(asked), remember=kept), "approved")

    async def deny(self, asked: ConsoleRequest, receive: Receive) -> ConsoleReply:
        """Refuse a call; the model reads the reason."""
        reason = asked.form.get("reason", "").strip() or None
        return await self._reported(asked, self._runs.statuses.deny(*_call_of(asked), reason=reason), "denied")

    async def answer(self, asked: ConsoleRequest, receive: Receive) -> ConsoleReply:
        """Answer a question of a server."""
        run_id, call_id = _call_of(asked)
        action = asked.form.get("action", "")
        if action in ("decline", "cancel"):
            if action == "decline":
                given = ElicitationResult.decline()
            else:
                given = ElicitationResult.cancel()
            return await self._reported(
                asked, self._runs.statuses.answer(run_id, call_id, given), f"answered: {action}"
            )
        # Read again: the form may be old, and the schema that counts is that of the question which waits now.
        waiting = await self._runs.statuses.waiting(run_id)
        question = next((one.question for one in waiting if one.call_id == call_id), None)
        values, wrong = _read({} if question is None else question.schema, asked.form)
        if wrong:
            return await self._run_page(asked, run_id, call_id, wrong)
        given = ElicitationResult.accept(values)
        return await self._reported(asked, self._runs.statuses.answer(run_id, call_id, given), "answered")

    async def cancel(self, asked: ConsoleRequest, receive: Receive) -> ConsoleReply:
        """Stop a run and all that it started."""
        run_id = asked.form.get("run", "")
        cancelled = await self._runs.statuses.cancel(run_id)
        if cancelled:
            said = "The run is asked to stop."
        else:
            said = "The run has ended already, or does not exist."
        asked.signed_in.say(said, problem=not cancelled)
        return ConsoleReply.see(asked.url("/run", id=run_id))

    async def _reported(self, asked: ConsoleRequest, answering: Coroutine[Any, Any, bool], done: str) -> ConsoleReply:
        run_id, call_id = _call_of(asked)
        try:
            goes_on = await answering
        except RunError as error:
            # The call still waits, so the form is shown again, with what was typed. Otherwise someone else was faster.
            if any(call.call_id == call_id for call in await self._runs.statuses.waiting(run_id)):
                return await self._run_page(asked, run_id, call_id, {"": str(error)})
            asked.signed_in.say(str(error), problem=True)
        else:
            asked.signed_in.say(f"The call {call_id!r} is {done}. {self._next(goes_on=goes_on)}")
        return ConsoleReply.see(asked.url("/run", id=run_id))

    def _next(self, *, goes_on: bool) -> str:
        if not goes_on:
            return "The run waits for answers to other calls."
        if self._runs.has_workers:
            return "The run continues."
        return "The run continues when its program resumes it."

    async def _waiting(self, one: RunInfo) -> Sequence[WaitingCall]:
        if one.status == "waiting":
            return await self._runs.statuses.waiting(one.run_id)
        return ()

    async def _run_page(
        self, asked: ConsoleRequest, run_id: str, of: str = "", wrong: Mapping[str, str] | None = None
    ) -> ConsoleReply:
        """Return the page of a run; `wrong` are the errors of the form that was sent for the call `of`."""
        one = await self._runs.statuses.get(run_id)
        if one is None:
            raise ConsoleRefusal(404, f"Run {run_id!r} was not found.")
        found = enumerate(await self._waiting(one), 1)
        return self._pages.page(
            asked,
            "run.html",
            status=422 if wrong else 200,
            one=one,
            tone=_tone(one),
            over=one.record.done,
            waiting=[
                _view(call, at, asked.form if call.call_id == of else {}, (wrong or {}) if call.call_id == of else {})
                for at, call in found
            ],
        )


def _call_of(asked: ConsoleRequest) -> tuple[str, str]:
    return asked.form.get("run", ""), asked.form.get("call", "")


def _read(schema: Mapping[str, Any], sent: Mapping[str, str]) -> tuple[Mapping[str, Any], Mapping[str, str]]:
    """Return the values that a sent form means, and the errors of fields, by their keys."""
    fields = fields_of(schema)
    # A schema that no form can show is answered as JSON; a person may choose JSON for the others.
    if fields is not None and "json" not in sent:
        return read_fields(fields, sent)
    try:
        return read_json(sent.get("json", "")), {}
    except ValueError as error:
        return {}, {"json": str(error)}


def _view(call: WaitingCall, number: int, sent: Mapping[str, str], wrong: Mapping[str, str]) -> WaitingView:
    question = call.question
    if question is None or question.mode == "url":
        page = "" if question is None else question.url or ""
        # The address is a server's. A `javascript:` link on this page would run as the console.
        safe = page if web_address_problem(page) is None else ""
        return WaitingView(call, number, (), {}, "", wrong, safe)
    fields = fields_of(question.schema)
    by_fields = bool(sent) and "json" not in sent
    values = {one.key: sent.get(one.key, "") if by_fields else one.value for one in fields or ()}
    return WaitingView(call, number, fields, values, sent.get("json", ""), wrong, "")


def _tone(one: RunInfo) -> str:
    if one.status in _GOOD:
        return "good"
    if one.status in _BAD:
        return "bad"
    return "busy"
