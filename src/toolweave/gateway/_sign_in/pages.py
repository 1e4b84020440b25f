"""The pages of a caller's sign-in at an upstream: before the link leads on, and after the redirect.

Every page is one document without scripts and frames. Opening a link changes nothing, since previews and scanners open
them as well: the sign-in begins with the form on its page.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from html import escape
from urllib.parse import parse_qsl

import anyio

from toolweave._text import one_line
from toolweave.gateway._sign_in.sign_ins import CALLBACK, LINK, LinkedSignIn, SignIns
from toolweave.oauth import AuthorizationResponse
from toolweave.serve._http.asgi import Receive, Scope, Send, cookies_in, path_of, respond
from toolweave.serve._oauth_server.browser import Browser, BrowserCookies
from toolweave.serve._oauth_server.clients import OAuthRefusal
from toolweave.serve._oauth_server.exchange import OAuthExchange
from toolweave.serve._oauth_server.keys import ServerKeys
from toolweave.serve._oauth_server.pages import html_page, send_page
from toolweave.serve.request import principal_name

_BEGIN_SECONDS = 30.0
_END_SECONDS = 60.0
_AT_SECONDS = 600
_MAX_SHOWN = 300
# a form without a referrer has no origin, either
_OWN_REFERRER = (b"referrer-policy", b"same-origin")
_USED = "This link was used, or is too old. Ask for another one where you got it."


class SignInPages:
    """An ASGI app: the links, and the redirect.

    Args:
        sign_ins: The sign-ins.
        name: The human-readable name of the gateway.
    """

    def __init__(self, sign_ins: SignIns, name: str) -> None:
        self._sign_ins = sign_ins
        self._name = name
        self._keys = ServerKeys([secrets.token_bytes(32)])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        exchange = OAuthExchange(scope, receive, send)
        path = path_of(scope)
        try:
            if path == CALLBACK and exchange.method == "GET":
                await self._callback(exchange)
            elif path.startswith(f"{LINK}/") and exchange.method in ("GET", "POST"):
                await self._link(exchange, path.removeprefix(f"{LINK}/"))
            else:
                await respond(send, 404, "Not Found")
        except OAuthRefusal as exc:
            await self._problem(exchange, exc.status, str(exc))

    def owner_of(self, scope: Scope) -> str:
        """Return the name of the replica that has begun the sign-in of a request, or nothing."""
        path = path_of(scope)
        if path.startswith(f"{LINK}/"):
            owner, dot, _ = path.removeprefix(f"{LINK}/").partition(".")
            if dot:
                return owner
            return ""
        query = dict(parse_qsl(scope.get("query_string", b"").decode("latin-1")))
        headers = dict(scope["headers"])
        mark = f"toolweave-{_at(query.get('state', ''))}"
        return next((value for name, value in cookies_in(headers) if name.endswith(mark)), "")

    async def used(self, send: Send) -> None:
        """Say that a link was used, or is of a replica that does not live any more."""
        await send_page(send, 404, _problem_page(_USED))

    def _cookies(self, one: LinkedSignIn) -> BrowserCookies:
        return BrowserCookies(self._keys, one.origin)

    def _browser(self, exchange: OAuthExchange, one: LinkedSignIn) -> Browser:
        return self._cookies(one).of(exchange.headers)

    async def _link(self, exchange: OAuthExchange, ticket: str) -> None:
        one = self._sign_ins.by_ticket(ticket)
        if one is None or not one.fresh:
            await self._problem(exchange, 404, _USED)
            return
        browser = self._browser(exchange, one)
        if exchange.method == "GET":
            token, headers = browser.form_token(ticket)
            await send_page(exchange.send, 200, self._asking(one, token), [*headers, _OWN_REFERRER])
            return
        form = await exchange.form()
        if not browser.sent_form(form.get("token", ""), ticket):
            await self._problem(exchange, 403, "This form was not sent from its page. Open the link again.")
        elif not one.fresh:  # while its form was read
            await self._problem(exchange, 404, _USED)
        else:
            await self._lead_on(exchange, one, browser)

    async def _lead_on(self, exchange: OAuthExchange, one: LinkedSignIn, browser: Browser) -> None:
        url = ""
        with anyio.move_on_after(_BEGIN_SECONDS):
            url = await self._sign_ins.begin(one)
        if one.agent is None or not url:
            said = one.problem or "the authorization server does not answer"
            await self._problem(exchange, 502, f"Signing in is not possible now: {said}")
            return
        headers = [browser.begins(one.agent.state)]
        if self._sign_ins.replica:
            headers.append(self._cookies(one).header(_at(one.agent.state), self._sign_ins.replica, _AT_SECONDS))
        await exchange.redirect(url, headers)

    async def _callback(self, exchange: OAuthExchange) -> None:
        query = exchange.query()
        state = query.get("state", "")
        one = self._sign_ins.by_state(state) if state else None
        if one is None or one.agent is None:
            await self._problem(exchange, 400, _USED)
            return
        browser = self._browser(exchange, one)
        if not browser.began(state):
            await self._problem(exchange, 403, "This sign-in was not begun in this browser.")
            return
        if not one.agent.answer(_answer(query)):
            await self._problem(exchange, 400, _USED)
            return
        with anyio.move_on_after(_END_SECONDS):
            await one.over.wait()
        if one.code:
            await send_page(exchange.send, 200, self._done(one), [browser.ends(state)])
        else:
            said = one.problem or "the server does not answer"
            await self._problem(exchange, 502, f"The sign-in did not work: {said}")

    # pages

    def _asking(self, one: LinkedSignIn, token: str) -> str:
        rows = [("Sign in at", one.config.name), ("Its address", one.config.endpoint)]
        rows += [("For", one_line(principal_name(one.principal), _MAX_SHOWN)), ("Through", self._name)]
        listed = "".join(f"<dt>{escape(name)}</dt><dd><code>{escape(value)}</code></dd>" for name, value in rows)
        warning = (
            "Continue only if you asked for this yourself just now. If it was sent to you, close the page: "
            "the account would be used by the sender."
        )
        form = (
            f'<form method="post"><input type="hidden" name="token" value="{escape(token)}">'
            '<button name="decision" value="allow">Sign in</button></form>'
        )
        title = f"Sign in at {one.config.name}?"
        return html_page(title, f'<dl>{listed}</dl><p class="warning">{escape(warning)}</p>{form}')

    def _done(self, one: LinkedSignIn) -> str:
        code = f"{one.code[:4]} {one.code[4:]}"
        return html_page(
            "One more step",
            f"<p>Give this code to the program in which you asked to sign in at {escape(one.config.name)}:</p>"
            f"<p><code>{escape(code)}</code></p>"
            '<p class="warning">Give it to no one else. Until it is given, the sign-in is not used; it is thrown '
            "away after ten minutes.</p>",
        )

    async def _problem(self, exchange: OAuthExchange, status: int, text: str) -> None:
        await send_page(exchange.send, status, _problem_page(text))


def _problem_page(text: str) -> str:
    return html_page("This sign-in cannot continue", f"<p>{escape(one_line(text, _MAX_SHOWN))}</p>")


def _at(state: str) -> str:
    """Return the name of the cookie that says which replica waits for the redirect with this state."""
    return "at-" + hashlib.sha256(state.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def _answer(query: Mapping[str, str]) -> AuthorizationResponse:
    return AuthorizationResponse(
        code=query.get("code"),
        state=query.get("state"),
        issuer=query.get("iss"),
        error=query.get("error"),
        error_description=query.get("error_description"),
    )
