"""Tool calls: the call and its context (timeout, progress, metadata, the client that can be asked).

Independent of the toolset that runs it.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar, overload

import msgspec

from toolweave._json_types import Json, JsonObject, new_object
from toolweave._value import DeferredTypes, Value
from toolweave.errors import ToolError
from toolweave.protocol.client_requests import (
    ABILITIES,
    Askable,
    ElicitationResult,
    Elicited,
    Root,
    SamplingMessage,
    SamplingResult,
    can_answer,
)
from toolweave.protocol.logs import LogLevel, check_level
from toolweave.tools._call_questions import CallQuestions
from toolweave.tools._caller import Caller, CallerSession, HasHeaders, HasSessions, SessionPort

if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultingTypeVar  # PEP 696, in `typing` from 3.13 on

    from toolweave.tools._client_requests import Question

    StateT_co = DefaultingTypeVar("StateT_co", default=JsonObject, covariant=True)
else:
    StateT_co = TypeVar("StateT_co", covariant=True)

FormT = TypeVar("FormT")

IDEMPOTENCY_KEY = "io.toolweave/idempotency-key"
"""The member of a call's `meta` for its idempotency key: a string, the same when the call is repeated, else unique."""
RESUMABLE = "io.toolweave/resumable"
"""The member of a definition's `meta` that declares: a call repeated with its idempotency key resumes, and is not done
twice."""


class Progress(Value, frozen=True, kw_only=True):
    """One progress notification of a running call.

    Attributes:
        progress: Amount done, increasing; in units of `total`.
        total: Amount in all, or None when unknown.
        message: A line for a reader, or None. Server text is untrusted.
    """

    progress: float
    total: float | None = None
    message: str | None = None


ProgressCallback: TypeAlias = Callable[[Progress], Awaitable[None] | None]
"""Called for every progress notification, in order; sync or async. Its exceptions are logged."""


class ToolCall(Value, frozen=True, kw_only=True):
    """The call itself: an exposed name and one arguments object.

    Attributes:
        id: The caller's id of this call, such as an LLM's `tool_call_id`, or None.
    """

    name: str
    arguments: JsonObject = msgspec.field(default_factory=new_object)
    id: str | None = None


def _no_state() -> Any:  # the state of a context that is given none, whatever the type of others
    return {}


class CallContext(Value, Generic[StateT_co], frozen=True, kw_only=True, metaclass=DeferredTypes):
    """The context of one call; handlers receive it by declaring a `CallContext` parameter.

    Attributes:
        timeout: Seconds without progress before the call times out; progress resets it.
            None uses the toolset's default.
        on_progress: Receives progress notifications, or None.
        meta: Members for the request's `_meta`.
        state: Dependencies for handlers: a mapping, or an object of any type, which an annotation
            `CallContext[AppState]` names it for type checkers.
        caller: The client on whose behalf the call runs, or None where no client can be asked.
        questions: Answers what the server asks its user in this call, where the connection leaves that to its callers.
    """

    repr_exclude: ClassVar[frozenset[str]] = frozenset({"state", "caller", "questions"})
    timeout: float | None = None
    on_progress: ProgressCallback | None = None
    meta: JsonObject = msgspec.field(default_factory=new_object)
    state: StateT_co = msgspec.field(default_factory=_no_state)
    caller: Caller | None = None
    questions: CallQuestions | None = None

    @property
    def principal(self) -> str | None:
        """The principal on whose behalf the call runs, as the server's authorization found it; None without one.

        It names one user of one client at one issuer, for programs to compare and to keep things under.
        """
        if self.caller is None:
            return None
        return self.caller.principal

    @property
    def session(self) -> CallerSession:
        """Values of this caller, kept between its calls: `await ctx.session.get("basket", [])`.

        They are kept under the conversation where the protocol has one, else under the authorized principal.

        Raises:
            ToolError: The call is not served by a server that keeps sessions.
        """
        return self._sessions().own()

    def session_under(self, key: str) -> CallerSession:
        """Return the values kept under a key that the caller passes on, such as an id that a tool returned.

        They are those of the authorized principal alone; without one, of anyone who knows the key: make it unguessable.

        Raises:
            ToolError: The call is not served by a server that keeps sessions.
        """
        return self._sessions().under(key)

    async def enable(self, *names: str, tags: Iterable[str] = ()) -> None:
        """Offer tools, prompts and resources to this caller's session, regardless of the server's own rules.

        Args:
            names: Names, URIs and templates, or the beginning of some with a `*` at its end.
            tags: Tags; offers with one of them are also meant.

        Raises:
            ToolError: This caller has no session, or the server enables and disables nothing.
            ValueError: Nothing is named.
        """
        await self._sessions().change(True, names, tags)

    async def disable(self, *names: str, tags: Iterable[str] = ()) -> None:
        """Offer tools, prompts and resources no more to this caller's session; see `enable`."""
        await self._sessions().change(False, names, tags)

    def _sessions(self) -> SessionPort:

        if not isinstance(self.caller, HasSessions):
            raise ToolError("there is no session here; only a call that is served has one")
        return self.caller.sessions

    @property
    def claims(self) -> JsonObject:
        """The verified claims of the caller's token; empty without one."""
        if self.caller is None:
            return {}
        return self.caller.claims

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the HTTP request that made the call, such as `x-tenant-id`; empty on other transports.

        Names are in lower case. Credentials, such as `authorization` and `cookie`, are left out. A client can send any
        header: trust one only if a proxy of yours sets it.
        """
        if isinstance(self.caller, HasHeaders):
            return self.caller.headers
        return {}

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress to the caller; does nothing when the caller did not ask for it."""
        if self.on_progress is None:
            return
        outcome = self.on_progress(Progress(progress=progress, total=total, message=message))
        if inspect.isawaitable(outcome):
            await outcome

    async def percent(self, percent: float, message: str | None = None) -> None:
        """Report progress from 0 to 100; `ProgressReporter` does it for functions without a context."""
        await self.progress(percent, 100, message)

    async def log(self, level: LogLevel, data: Any, *, logger: str | None = None) -> None:
        """Send the client a log message; does nothing when it does not want this level.

        Args:
            level: A severity of RFC 5424.
            data: A text or any other JSON value; no secrets, the client shows it to people.
            logger: The name of the logger.

        Raises:
            ValueError: The severity is unknown.
        """
        check_level(level)
        if self.caller is not None:
            await self.caller.log(level, data, logger)

    async def release_stream(self) -> None:
        """Close the stream on which the answer would come; the client comes back for it later.

        Saves a connection while a slow handler has nothing to send. Does nothing where a client cannot resume:
        only legacy HTTP sessions can (2025-11-25, SSE polling).
        """
        if self.caller is not None:
            await self.caller.release()

    def can(self, what: Askable) -> bool:
        """Whether the client declared the capability for such questions; False where no client can be asked."""
        needs = ABILITIES[what]
        return self.caller is not None and can_answer(needs, self.caller.capabilities)

    @overload
    async def elicit(self, message: str, schema: type[FormT], *, key: str | None = None) -> Elicited[FormT]: ...
    @overload
    async def elicit(
        self, message: str, schema: JsonObject | None = None, *, key: str | None = None
    ) -> ElicitationResult: ...
    async def elicit(self, message: str, schema: JsonObject | type | None = None, *, key: str | None = None) -> Any:
        """Ask the user to fill in a form, and wait for the answer.

        With a client of a modern revision (2026-07-28) the handler ends here and runs again from its start when
        the answer is there, so do nothing before a question that must not be done twice.

        Args:
            message: The question to the user.
            schema: The form: a JSON Schema of flat fields, or a pydantic model or dataclass, of which the answer's
                `value` is then an instance; None only asks for consent.
            key: Names the question when the handler runs again; needed only where its text changes between runs.

        Raises:
            RequestError: The client declared no forms; ask `can("elicitation")` first.
            ToolError: It refused, or answered with something else.
            SchemaError: The form has a field that no form can have.
        """
        from toolweave.tools._client_requests import Elicitation  # late: only a served tool asks

        return (await self._ask(Elicitation(message, schema, key=key)))[0]

    async def elicit_url(self, message: str, url: str, *, key: str | None = None) -> ElicitationResult:
        """Ask the user to visit a page, for input that must not pass through the client; return the decision.

        Raises:
            RequestError: The client declared no pages; ask `can("elicitation.url")` first.
            ToolError: It refused, or answered with something else.
        """
        from toolweave.tools._client_requests import Elicitation

        return (await self._ask(Elicitation(message, url=url, key=key)))[0]

    async def sample(
        self,
        messages: str | SamplingMessage | Sequence[str | SamplingMessage],
        *,
        max_tokens: int = 1024,
        system_prompt: str | None = None,
        temperature: float | None = None,
        key: str | None = None,
    ) -> SamplingResult:
        """Ask the client's language model and wait for its answer; `ask` with a `Sampling` has every option.

        Raises:
            RequestError: The client declared no sampling; ask `can("sampling")` first.
            ToolError: It refused, or answered with something else.
        """
        from toolweave.tools._client_requests import Sampling

        question = Sampling(
            messages, max_tokens=max_tokens, system_prompt=system_prompt, temperature=temperature, key=key
        )
        return (await self._ask(question))[0]

    async def list_roots(self) -> tuple[Root, ...]:
        """Ask the client for the directories that the server may work on.

        Raises:
            RequestError: The client declared no roots; ask `can("roots")` first.
            ToolError: It refused, or answered with something else.
        """
        from toolweave.tools._client_requests import Roots

        return (await self._ask(Roots()))[0]

    async def ask(self, **questions: Question) -> Json:
        """Put several questions to the client at once and return their answers by name.

        The names are the keys of the questions, unless these have their own.

        Raises:
            RequestError: The client did not declare what one of them needs.
            ToolError: It refused one, or answered with something else.
        """
        if not questions:
            return {}
        from dataclasses import replace

        named = [question if question.key else replace(question, key=name) for name, question in questions.items()]
        return dict(zip(questions, await self._ask(*named), strict=True))

    async def _ask(self, *questions: Question) -> Sequence[Any]:
        if self.caller is None:
            raise ToolError(f"there is no client to ask here ({questions[0].method}); only a served call has one")
        return await self.caller.ask(questions)


NO_CONTEXT = CallContext()
"""The default context; shared, because a context is immutable and calls are many."""


class ProgressReporter:
    """Reports progress in percent, for code that is given no context.

    Args:
        ctx: The context of the call that is reported on.
    """

    def __init__(self, ctx: CallContext) -> None:
        self._ctx = ctx

    def __repr__(self) -> str:
        return "<ProgressReporter of a call>"

    async def report(self, percent: float, message: str | None = None, data: object = None) -> None:
        """Report the progress; sent in MCP's form, with a total of 100.

        Args:
            percent: From 0 to 100.
            message: A line for a reader.
            data: Dropped: MCP's notification has no member for it.

        Raises:
            ValueError: `percent` is not in its range.
        """
        if not 0 <= percent <= 100:
            raise ValueError(f"progress is from 0 to 100 percent, not {percent!r}")
        await self._ctx.percent(percent, message)
