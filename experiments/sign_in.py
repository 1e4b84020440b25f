"""A person who signs in, and the SDK's sign-in with all that its user has to write.

Players import it in the environment of any library: it needs the standard library, and the SDK where that signs in.
"""

from __future__ import annotations

import asyncio
import http.client
import time
from collections.abc import Mapping
from importlib import import_module
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

__all__ = ["REDIRECT", "SECONDS", "Person", "sdk_sign_in"]

SECONDS = 20
REDIRECT = "http://127.0.0.1:43117/callback"


class Person:
    """A person who signs in: opens a page, and follows its redirect at once.

    Attributes:
        opened: The pages.
    """

    def __init__(self) -> None:
        self.opened: list[str] = []

    def visit(self, url: str) -> str:
        """Open a page and return where it redirects to."""
        self.opened.append(url)
        parts = urlsplit(url)
        connection = http.client.HTTPConnection(parts.netloc, timeout=SECONDS)
        try:
            connection.request("GET", f"{parts.path}?{parts.query}")
            return connection.getresponse().getheader("location", "")
        finally:
            connection.close()

    def open(self, url: str, *_: Any) -> bool:
        """Stand in for `webbrowser.open` of a library that listens for the redirect itself."""
        Thread(target=self._follow, args=(url,), daemon=True).start()
        return True

    def _follow(self, url: str) -> None:
        parts = urlsplit(self.visit(url))
        for _ in range(100):
            connection = http.client.HTTPConnection(parts.netloc, timeout=SECONDS)
            try:
                connection.request("GET", f"{parts.path}?{parts.query}")
                connection.getresponse().read()
            except ConnectionRefusedError:  # it does not listen yet
                time.sleep(0.1)
            else:
                return
            finally:
                connection.close()


class _Tokens:
    """The storage of tokens that the SDK leaves to its user."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._tokens: Any = None

    async def get_tokens(self) -> Any:
        return self._tokens

    async def set_tokens(self, tokens: Any) -> None:
        self._tokens = tokens

    async def get_client_info(self) -> Any:
        return self._client

    async def set_client_info(self, client_info: Any) -> None:
        self._client = client_info


def sdk_sign_in(url: str, person: Person, client: Mapping[str, str] | None = None) -> Any:
    """Return the `OAuthClientProvider` of the SDK, with the id and secret of a client if it is registered already."""
    auth, shared = import_module("mcp.client.auth"), import_module("mcp.shared.auth")
    redirects: list[str] = []

    async def show(address: str) -> None:
        redirects.append(await asyncio.to_thread(person.visit, address))

    async def answer() -> Any:
        query = {name: values[0] for name, values in parse_qs(urlsplit(redirects[-1]).query).items()}
        if "code" not in query:
            raise RuntimeError(f"{query.get('error')}: {query.get('error_description')}")
        made = getattr(auth, "AuthorizationCodeResult", None)
        if made is None:  # SDK 1.x
            return query["code"], query.get("state")
        return made(code=query["code"], state=query.get("state"), iss=query.get("iss"))

    metadata = {"client_name": "SDK", "redirect_uris": [REDIRECT], "token_endpoint_auth_method": "none"}
    registered = None
    if client:
        known = {**metadata, **client, "token_endpoint_auth_method": "client_secret_post"}
        registered = shared.OAuthClientInformationFull.model_validate(known)
    return auth.OAuthClientProvider(
        server_url=url,
        client_metadata=shared.OAuthClientMetadata.model_validate(metadata),
        storage=_Tokens(registered),
        redirect_handler=show,
        callback_handler=answer,
    )
