"""Requests of callers who are not signed in at the upstream yet: they get a link, and bring back a code.

A caller that can lead its user to a page gets the link as a question: a modern one in rounds of input, one of
2025-11-25 as the error that names the page. For all others the link is in the text of an error. The code comes back
in a form, or as the argument of the tool that signs in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import anyio

from toolweave._json_types import object_or_empty, text_or_empty, without_members
from toolweave.config import is_loopback
from toolweave.errors import ErrorKind, RequestError, ServerError, StoreError, ToolError
from toolweave.gateway._relay.sealed_state import SealedRound, StateCipher
from toolweave.gateway._sign_in.sign_ins import SignIns
from toolweave.protocol import methods
from toolweave.protocol.client_requests import (
    ABILITIES,
    can_answer,
    form_params,
    page_params,
    pages_data,
    visited_params,
)
from toolweave.protocol.codes import URL_ELICITATION_REQUIRED
from toolweave.protocol.input_required import (
    INPUT_REQUIRED,
    INPUT_RESPONSES,
    REQUEST_STATE,
    input_request,
    input_required,
)
from toolweave.protocol.versions import LATEST_HANDSHAKE_VERSION
from toolweave.serve import Client, Request
from toolweave.serve._changes import Changes, Topic
from toolweave.serve.request import Json
from toolweave.tools import ToolSpec, expose

_PAGE = "page"
_CODE = "code"
_DONE = "done"
_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {_CODE: {"type": "string", "description": "The code that the last page of the sign-in showed."}},
}


def sign_in_tool(server: str, prefix: str | None) -> ToolSpec:
    """Return the tool by which a caller signs in at an upstream, which is offered as long as it has not."""
    return ToolSpec(
        name=expose(server, "sign_in", prefix),
        original_name="sign_in",
        server=server,
        title=f"Sign in at {server}",
        description=(
            f"Sign the user in at {server}, whose tools are there afterwards. Without a code it gives a link for the "
            "user to open; with the code that the last page shows it ends the sign-in."
        ),
        input_schema=_SCHEMA,
        annotations={"readOnlyHint": False, "openWorldHint": True},
    )


class SignInFirst:
    """Answers requests of callers who are not signed in.

    Args:
        sign_ins: The sign-ins that are under way.
        cipher: Seals the state of rounds of input.
        changes: Knows the sessions of legacy callers, which are notified that a page was visited.

    Attributes:
        sign_ins: The sign-ins.
    """

    def __init__(self, sign_ins: SignIns, cipher: StateCipher, changes: Changes) -> None:
        self.sign_ins = sign_ins
        self._cipher = cipher
        self._changes = changes

    def resumed(self, request: Request) -> SealedRound | None:
        """Return the round of a sign-in that a request continues, or None.

        Raises:
            RequestError: Its state is not of this request (-32602).
        """
        if not request.modern or REQUEST_STATE not in request.params:
            return None
        found = self._cipher.open(request, request.params[REQUEST_STATE])
        if found.sign_in:
            return found
        return None

    def settled(self, request: Request) -> Request:
        """Return a request whose sign-in is done as it was made at first, so that all middleware sees it like that."""
        try:
            resumed = self.resumed(request)
        except RequestError:  # of another feature, which refuses it
            return request
        if resumed is not None and resumed.sign_in == _DONE:
            return without_round(request)
        return request

    async def answer(self, request: Request, tool: ToolSpec, scopes: Sequence[str] = ()) -> Json | None:
        """Answer a request with the next step of the sign-in; None when it has just been completed.

        Args:
            request: The request.
            tool: The tool that signs in at the upstream.
            scopes: Scopes to ask for beside those that the upstream wants.

        Raises:
            RequestError: The error that names the page.
            ToolError: The error whose text has the link, or the caller cannot sign in.
        """
        server = str(tool.server)
        principal = str(request.client.principal)
        resumed = self.resumed(request)
        answered, code = _answer(request) if resumed is not None else (True, "")
        if not answered:
            self.sign_ins.give_up(server, principal)
            raise _wanted(f"the user did not sign in at {server}")
        if resumed is None and request.params.get("name") == tool.name:
            code = text_or_empty(object_or_empty(request.params.get("arguments")).get(_CODE))
        if code:
            await self._confirm(server, principal, code, tool)
            return None
        number = 1 if resumed is None else resumed.number + 1
        if can_answer(ABILITIES["elicitation"], request.client.capabilities):
            if resumed is not None or self.sign_ins.begun(server, principal):
                return await self._ask_code(request, tool, number)
        elif resumed is not None:
            raise _wanted(f"ask the user for the code that the last page shows, and call {tool.name!r} with it")
        return self._lead(request, tool, number, scopes)

    def request_repeat(self, request: Request, server: str) -> Json:
        """Return the answer to a request whose caller has signed in now: it is repeated, as any other.

        So the rules about names that were not known before apply, and the upstream learns nothing of the sign-in.

        Raises:
            ToolError: The caller gets a text.
        """
        if not request.modern:
            raise _wanted(f"the user is signed in at {server} now: make this request again")
        state = self._cipher.seal(request, SealedRound(server=server, number=1, sign_in=_DONE))
        return {"resultType": INPUT_REQUIRED, REQUEST_STATE: state}

    async def _confirm(self, server: str, principal: str, code: str, tool: ToolSpec) -> None:
        try:
            good = await self.sign_ins.confirm(server, principal, code)
        except (ServerError, StoreError) as exc:
            raise _wanted(f"server {server!r} cannot be used with this sign-in: {exc}") from None
        if not good:
            raise _wanted(
                f"this is not the code of a sign-in at {server!r} that waits for one; call {tool.name!r} without a "
                "code for another link"
            )

    # questions

    def _lead(self, request: Request, tool: ToolSpec, number: int, scopes: Sequence[str]) -> Json:
        """Lead the user to the link.

        Raises:
            RequestError: The error that names the page.
            ToolError: The error whose text has the link.
        """
        client = request.client
        server = str(tool.server)
        origin = _origin(self.sign_ins.url, request)
        if origin is None:
            raise _wanted(f"server {server!r} requires a sign-in, but this gateway has no public address")
        one = self.sign_ins.link(server, str(client.principal), origin, scopes)
        if not _can_visit(client):
            raise _wanted(
                f"{server!r} requires a sign-in. Ask the user to open {one.url} and sign in there, then call "
                f"{tool.name!r} with the code that the last page shows."
            )
        message = f"Sign in at {server} to continue. The last page shows a code, which you will be asked for."
        page = page_params(message, one.url, modern=request.modern, visit=one.name)
        if request.modern:
            return self._asked(request, server, number, _PAGE, page)
        if client.conversation is not None:
            done = Topic(methods.NOTIFICATIONS_ELICITATION_COMPLETE, one.name)
            notify = partial(self._changes.publish_to, client.conversation, done, visited_params(one.name))
            one.listeners[client.conversation] = notify
        raise RequestError(
            f"a sign-in at {server!r} is required; then call {tool.name!r} with the code that the last page shows",
            code=URL_ELICITATION_REQUIRED,
            data=pages_data(page),
        )

    async def _ask_code(self, request: Request, tool: ToolSpec, number: int) -> Json | None:
        """Ask for the code in a form, which may stay open while the user is still at the pages.

        Raises:
            ToolError: None was given, or a wrong one.
        """
        server = str(tool.server)
        principal = str(request.client.principal)
        asked = form_params(
            f"The code that the last page of the sign-in at {server} shows", {**_SCHEMA, "required": [_CODE]}
        )
        if request.modern:
            return self._asked(request, server, number, _CODE, asked)
        answer: Json = {}
        with anyio.move_on_after(self._cipher.ttl):
            answer = await request.reply_channel.ask(methods.ELICITATION_CREATE, asked)
        code = _code_in(answer)
        if not code:
            self.sign_ins.give_up(server, principal)
            raise _wanted(f"the user did not sign in at {server}")
        await self._confirm(server, principal, code, tool)
        return None

    def _asked(self, request: Request, server: str, number: int, key: str, asked: Mapping[str, Any]) -> Json:
        question = input_request(methods.ELICITATION_CREATE, asked)
        round_ = SealedRound(server=server, number=number, sign_in=key)
        return input_required({key: question}, self._cipher.seal(request, round_))


def without_round(request: Request) -> Request:
    """Return a request without the state and the answers of a round."""
    kept = without_members(request.params, INPUT_RESPONSES, REQUEST_STATE)
    return request.replace(params=kept)


def _origin(url: str | None, request: Request) -> str | None:
    """Return the address under which a browser reaches the gateway; None where it is not known."""
    if url is not None:
        return url.rstrip("/")
    host = request.headers.get("host", "")
    if is_loopback(urlsplit(f"//{host}").hostname):
        return f"http://{host}"
    return None


def _can_visit(client: Client) -> bool:
    """Whether a client can lead its user to a page."""
    known = client.version >= LATEST_HANDSHAKE_VERSION
    return known and can_answer(ABILITIES["elicitation.url"], client.capabilities)


def _answer(request: Request) -> tuple[bool, str]:
    """Return whether the user answered a round, and the code if that was asked for."""
    given = list(map(object_or_empty, request.object(INPUT_RESPONSES).values()))
    answered = bool(given) and all(one.get("action") == "accept" for one in given)
    return answered, next((found for one in given if (found := _code_in(one))), "")


def _code_in(answer: Mapping[str, Any]) -> str:
    content = object_or_empty(answer.get("content"))
    if answer.get("action") == "accept":
        return text_or_empty(content.get(_CODE))
    return ""


def _wanted(text: str) -> ToolError:
    return ToolError(text, kind=ErrorKind.AUTH_REQUIRED)
