"""The console as an ASGI app: authentication, routing of pages, and the checks before a form changes anything.

A signed-in user can call tools and start programs. A request also passes the guard of the endpoint (`Host`,
`Origin`, sizes). In addition, pages of other ports of this machine count as foreign, and each form carries the token of
its session.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from toolweave.errors import ToolweaveError
from toolweave.gateway._admin.managed import ManagedGateway
from toolweave.gateway._console.app_pages import AppHost
from toolweave.gateway._console.key_pages import KeyPages
from toolweave.gateway._console.rendering import ConsolePages, static_file
from toolweave.gateway._console.requests import ConsolePage, ConsoleRefusal, ConsoleReply, ConsoleRequest, read_request
from toolweave.gateway._console.server_pages import ServerPages
from toolweave.gateway._console.shared_sessions import SharedConsoleSessions
from toolweave.gateway._console.task_pages import TaskPages
from toolweave.gateway._console.tool_pages import OfferPages
from toolweave.gateway._console.trust_pages import TrustPages
from toolweave.gateway._observe.recent_calls import RecentCalls
from toolweave.serve._http.asgi import Receive, Scope, Send

if TYPE_CHECKING:
    from toolweave.gateway._console.run_pages import RunPages
    from toolweave.gateway._observe.runs import StoredRuns

_log = logging.getLogger("toolweave.gateway")


class ConsoleApp:
    """The console of a gateway.

    Args:
        gateway: The gateway.
        token: The admin token, by which people sign in where they have no link.
        calls: Keeps the last calls and tasks.
        path: The path that it is served at.
    """

    def __init__(self, gateway: ManagedGateway, token: str, calls: RecentCalls, *, path: str = "/ui") -> None:
        self._path = path
        self._sessions = SharedConsoleSessions(token, gateway.fleet.replicas)
        self._pages = pages = ConsolePages(gateway.name, runs=gateway.runs is not None)
        self._apps = apps = AppHost(gateway)
        servers = ServerPages(gateway, pages)
        tools = OfferPages(gateway, pages, calls, apps)
        trust = TrustPages(gateway, pages)
        tasks = TaskPages(calls.tasks, gateway.fleet, pages)
        keys = KeyPages(gateway, pages)
        parts = (servers, tools, tasks, trust, keys, apps, *_run_pages(gateway.runs, pages))
        self._shown: Mapping[str, ConsolePage] = {where: page for one in parts for where, page in one.shown.items()}
        self._changing: Mapping[str, ConsolePage] = {
            where: page for one in parts for where, page in one.changing.items()
        }

    def link(self) -> str:
        """Return the path of a new link, which signs in the first browser that opens it within an hour."""
        return f"{self._path}/?token={self._sessions.new_link()}"

    async def run(self) -> None:
        """Serve the sandbox at its own address and share sessions with the other replicas, until cancelled."""
        end = self._sessions.listen()
        try:
            await self._apps.sandbox.run()
        finally:
            end()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        reply = await self._reply(scope, receive)
        await reply.send(send)

    async def _reply(self, scope: Scope, receive: Receive) -> ConsoleReply:
        try:
            asked = await read_request(scope, receive, self._path)
        except ConsoleRefusal as refusal:
            return ConsoleReply(refusal.status, str(refusal).encode(), [(b"content-type", b"text/plain")])
        asked = asked._replace(session=await self._sessions.of(asked.headers))
        reply = await self._safe_answer(asked, receive)
        # before the reply: the browser may send its next request to another replica
        await self._sessions.save(asked.session)
        return reply

    async def _safe_answer(self, asked: ConsoleRequest, receive: Receive) -> ConsoleReply:
        try:
            return await self._answer(asked, receive)
        except ConsoleRefusal as refusal:
            return self._pages.page(asked, "error.html", status=refusal.status, problem=str(refusal))
        except ToolweaveError as error:
            return self._pages.page(asked, "error.html", status=502, problem=str(error))
        except Exception:  # boundary: a page that fails must not end the gateway, nor show its insides
            _log.exception("the page %s of the console failed", asked.path[:100])
            return self._pages.page(asked, "error.html", status=500, problem="The page failed; see the log.")

    async def _answer(self, asked: ConsoleRequest, receive: Receive) -> ConsoleReply:
        if asked.path.startswith("/static/"):
            found = static_file(asked.path.removeprefix("/static/"))
            if found is None:
                raise ConsoleRefusal(404, "This page does not exist.")
            return found
        if asked.method == "POST":
            return await self._changed(asked, receive)
        if asked.session is None:
            return await self._signed_out(asked)
        if "token" in asked.query:
            await self._sessions.opens(asked.query["token"])
            return ConsoleReply.see(asked.url("/"))
        page = self._shown.get(asked.path)
        if page is None:
            raise ConsoleRefusal(404, "This page does not exist.")
        return await page(asked, receive)

    async def _changed(self, asked: ConsoleRequest, receive: Receive) -> ConsoleReply:
        """Answer a form, once it is sure that a page of this console sent it."""
        _check_origin(asked)
        if asked.path == "/sign-in":
            return await self._sign_in(asked)
        if asked.session is None:
            return await self._signed_out(asked)
        if not asked.session.takes(asked.form.get("csrf", "")):
            raise ConsoleRefusal(403, "The form is of another session: go back, reload the page and try again.")
        if asked.path == "/sign-out":
            gone = await self._sessions.end(asked.headers, asked.base)
            page = self._pages.page(asked._replace(session=None), "sign-in.html", problem="", said="Signed out.")
            return page._replace(headers=[*page.headers, gone])
        page = self._changing.get(asked.path)
        if page is None:
            raise ConsoleRefusal(404, "This page does not exist.")
        return await page(asked, receive)

    async def _signed_out(self, asked: ConsoleRequest) -> ConsoleReply:
        """Answer a browser that is not signed in."""
        if asked.fragment:
            return ConsoleReply(401, headers=[(b"hx-redirect", asked.url("/").encode())])
        token = asked.query.get("token")
        problem = ""
        if token is not None and asked.method == "GET":
            refused = await self._sessions.opens(token)
            if refused is None:
                return await self._welcome(asked)
            problem = refused
        elif "signed" in asked.query:
            problem = "Your browser did not keep the cookie. From another machine, the console requires https."
        return self._pages.page(asked, "sign-in.html", status=401, problem=problem, said="")

    async def _welcome(self, asked: ConsoleRequest) -> ConsoleReply:
        """Sign in by a link.

        The page leads on by itself: browsers bring a strict cookie where our own page leads, but not on a redirect that
        follows a link of another site, such as a terminal in the browser.
        """
        _log.warning("a browser signed in to the console by its link")
        page = self._pages.page(asked, "welcome.html", onward=asked.url("/"))
        return page._replace(headers=[*page.headers, await self._sessions.begin(asked.headers, asked.base)])

    async def _sign_in(self, asked: ConsoleRequest) -> ConsoleReply:
        match self._sessions.signs_in(asked.form.get("token", "").strip()):
            case None:
                text = "There were too many attempts. Wait a minute."
                status = 429
            case False:
                _log.warning("a browser tried a wrong token to sign in to the console")
                text = "This is not the admin token."
                status = 401
            case True:
                _log.warning("a browser signed in to the console with the admin token")
                see = ConsoleReply.see(asked.url("/", signed="in"))
                return see._replace(headers=[*see.headers, await self._sessions.begin(asked.headers, asked.base)])
        return self._pages.page(asked, "sign-in.html", status=status, problem=text, said="")


def _run_pages(runs: StoredRuns | None, pages: ConsolePages) -> tuple[RunPages, ...]:
    """Return the pages about runs, if a store of them is named."""
    if runs is None:
        return ()
    from toolweave.gateway._console.run_pages import RunPages  # it loads agents

    return (RunPages(runs, pages),)


def _check_origin(asked: ConsoleRequest) -> None:
    """Refuse a form of any page but those of this host and port; the guard lets other ports of this machine in."""
    origin = asked.headers.get(b"origin")
    host = asked.headers.get(b"host", b"")
    site = asked.headers.get(b"sec-fetch-site", b"same-origin")
    if origin is None:
        authority = host
    else:
        authority = origin.partition(b"://")[2]
    if authority.lower() != host.lower() or site != b"same-origin":
        raise ConsoleRefusal(403, "Forms come from the console's own pages only.")
