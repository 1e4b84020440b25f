"""Forward the pages of a sign-in to the replica that began it, and show its answers.

A sign-in lives in the replica whose caller got its link. The link begins with the name of that replica, and a cookie
repeats it until the redirect. The browser's requests go there encrypted, like all messages between replicas.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from toolweave.errors import RequestError
from toolweave.gateway._replicas.replicas import ReplicaGone, Replicas, UnknownToReplica
from toolweave.gateway._sign_in.pages import SignInPages
from toolweave.serve._http.asgi import Message, Receive, Scope, Send, read_body, respond
from toolweave.serve.request import Json

_KIND = "sign-in page"
_MAX_BYTES = 64 * 1024
_HEADERS = frozenset({b"cookie", b"content-type", b"origin", b"referer", b"sec-fetch-site"})


class _SentPage(msgspec.Struct):
    """One answer to a browser, for another replica."""

    status: int = 500
    headers: list[tuple[str, str]] = []
    body: str = ""

    async def send(self, message: Message) -> None:
        """Take a part of the answer, as ASGI sends it."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in message["headers"]]
        else:
            self.body += message.get("body", b"").decode()


class PagesOfReplicas:
    """An ASGI app: the pages of this replica, and through it those of the others.

    Args:
        pages: The pages of this replica.
        replicas: The others.
    """

    def __init__(self, pages: SignInPages, replicas: Replicas) -> None:
        self._pages = pages
        self._replicas = replicas

    def listen(self) -> Callable[[], None]:
        """Answer forwarded requests of other replicas from now on; return a function that stops it."""
        return self._replicas.on(_KIND, self._asked)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        owner = self._pages.owner_of(scope)
        if owner in ("", self._replicas.id):
            await self._pages(scope, receive, send)
            return
        body = await read_body(receive, _MAX_BYTES)
        if body is None:
            await respond(send, 413, "Content Too Large")
            return
        try:
            page = await self._there(owner, scope, body)
        except RequestError as exc:
            await respond(send, 503, exc.message)
            return
        if page is None:
            await self._pages.used(send)
            return
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in page.headers]
        await send({"type": "http.response.start", "status": page.status, "headers": headers})
        await send({"type": "http.response.body", "body": page.body.encode()})

    async def _there(self, owner: str, scope: Scope, body: bytes) -> _SentPage | None:
        """Return the answer of another replica; None if it does not live any more.

        Raises:
            RequestError: It cannot be asked now.
        """
        # The name is in a link, which anybody can write: only a living replica is asked, and nothing is kept for an
        # unknown one.
        if owner not in await self._replicas.living():
            return None
        asked: Json = {
            "method": scope["method"],
            "path": scope["path"],
            "root": scope.get("root_path", ""),
            "query": scope.get("query_string", b"").decode("latin-1"),
            # Only those that the pages check. The others, such as authorization, are of no use there.
            "headers": [[n.decode("latin-1"), v.decode("latin-1")] for n, v in scope["headers"] if n in _HEADERS],
            "body": body.decode("latin-1"),
        }
        try:
            return msgspec.convert(await self._replicas.ask(owner, _KIND, asked), _SentPage)
        except (ReplicaGone, UnknownToReplica):
            return None

    async def _asked(self, body: Json) -> Json:
        """Answer a request of a browser that reached another replica."""
        sent = [body["body"].encode("latin-1")]
        page = _SentPage()
        scope: dict[str, Any] = {
            "type": "http",
            "method": body["method"],
            "path": body["path"],
            "root_path": body["root"],
            "query_string": body["query"].encode("latin-1"),
            "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in body["headers"]],
        }

        async def receive() -> Message:
            return {"type": "http.request", "body": sent.pop() if sent else b"", "more_body": False}

        await self._pages(scope, receive, page.send)
        return msgspec.to_builtins(page)
