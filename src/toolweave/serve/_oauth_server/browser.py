"""The browser of a person: three small cookies, each signed or random, none of them readable by pages.

- *browser*: a random name of the browser, which forms are bound to, so that no other page can send them for it;
- *consents*: the clients that the person has consented to with this browser, signed;
- *sign-in*: set only with the consent, and required at the provider's return.
"""

# The cookie of a sign-in proves that the person who consented is the person who comes back. Without it, an attacker
# could consent and send another person to sign in, and would get a code for their account.

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from urllib.parse import urlsplit

from toolweave.serve._http.asgi import cookies_in
from toolweave.serve._oauth_server.keys import ServerKeys, new_secret

_MAX_CONSENTS = 50
_CONSENT_SECONDS = 30 * 86_400
_BROWSER_SECONDS = 86_400
_SIGN_IN_SECONDS = 600


class BrowserCookies:
    """Reads and writes the cookies of browsers for one server.

    Args:
        keys: Signs them.
        issuer: The server's URL; over plain http, for development, cookies lack `Secure` and `__Host-`.
    """

    def __init__(self, keys: ServerKeys, issuer: str) -> None:
        self.keys = keys
        self._secure = urlsplit(issuer).scheme == "https"
        if self._secure:
            self._prefix = "__Host-toolweave-"
        else:
            self._prefix = "toolweave-"

    def of(self, headers: Mapping[bytes, bytes]) -> Browser:
        """Return the browser that sent a request."""
        sent = cookies_in(headers)
        prefix = self._prefix
        cookies = {name.removeprefix(prefix): value for name, value in sent if name.startswith(prefix)}
        return Browser(self, cookies, headers.get(b"sec-fetch-site", b"").decode("latin-1"))

    def header(self, name: str, value: str, seconds: int) -> tuple[bytes, bytes]:
        """Return the header that sets a cookie, or deletes it if `seconds` is 0."""
        text = f"{self._prefix}{name}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}"
        if self._secure:
            text += "; Secure"
        return b"set-cookie", text.encode()


class Browser:
    """A browser, by its cookies."""

    def __init__(self, cookies: BrowserCookies, sent: Mapping[str, str], site: str) -> None:
        self._cookies = cookies
        self._sent = sent
        # another site may have sent the person, so an earlier consent does not cover this
        self.cross_site = site not in ("none", "same-origin")
        self._name = sent.get("browser", "")
        self._is_new = not 40 <= len(self._name) <= 64
        if self._is_new:
            self._name = new_secret()

    def form_token(self, sign_in: str) -> tuple[str, list[tuple[bytes, bytes]]]:
        """Return the token of a form for a sign-in, and the headers of its page. Several forms may be open at once."""
        headers: list[tuple[bytes, bytes]] = []
        if self._is_new:
            headers.append(self._cookies.header("browser", self._name, _BROWSER_SECONDS))
        return self._cookies.keys.sign("forms", self._name, sign_in), headers

    def sent_form(self, token: str, sign_in: str) -> bool:
        """Whether the token of a form was made for this browser and this sign-in."""
        return not self._is_new and self._cookies.keys.is_signed(token, "forms", self._name, sign_in)

    def has_consented(self, client_id: str, redirect_uri: str) -> bool:
        """Whether the person has consented to this client with this redirect URI before."""
        return _mark(client_id, redirect_uri) in self._consents()

    def consented(self, client_id: str, redirect_uri: str) -> tuple[bytes, bytes]:
        """Return the header that remembers a consent."""
        mark = _mark(client_id, redirect_uri)
        # The newest first, so that the oldest are cut off: a cookie has room for about 4,000 bytes.
        others = [one for one in self._consents() if one != mark]
        text = ".".join([mark, *others][:_MAX_CONSENTS])
        return self._cookies.header("consents", f"{text}!{self._cookies.keys.sign('consents', text)}", _CONSENT_SECONDS)

    def begins(self, state: str) -> tuple[bytes, bytes]:
        """Return the header that binds a sign-in at the provider to this browser."""
        return self._cookies.header(_slot(state), self._cookies.keys.sign("sign-ins", state), _SIGN_IN_SECONDS)

    def began(self, state: str) -> bool:
        """Whether this browser began the sign-in that comes back from the provider."""
        return self._cookies.keys.is_signed(self._sent.get(_slot(state), ""), "sign-ins", state)

    def ends(self, state: str) -> tuple[bytes, bytes]:
        """Return the header that forgets a sign-in."""
        return self._cookies.header(_slot(state), "", 0)

    def _consents(self) -> list[str]:
        text, _, signature = self._sent.get("consents", "").partition("!")
        if text and self._cookies.keys.is_signed(signature, "consents", text):
            return text.split(".")
        return []


def _slot(state: str) -> str:
    return "sign-in-" + hashlib.sha256(state.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def _mark(client_id: str, redirect_uri: str) -> str:
    made = hashlib.sha256(f"{client_id}\n{redirect_uri}".encode("utf-8", "surrogatepass")).digest()[:12]
    return urlsafe_b64encode(made).decode()
