"""The pages of a sign-in: whether a client may act for the person, and errors. Every text in them is escaped."""

# A page is one document with one form, without scripts, pictures and frames. The policy has no `form-action`, because
# browsers apply it to the redirects that follow a form, and those lead to the provider and then to the client.

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Sequence
from html import escape
from urllib.parse import urlsplit

from toolweave.serve._http.asgi import Send
from toolweave.serve._oauth_server.clients import KnownClient
from toolweave.serve._oauth_server.redirect_uris import is_loopback_uri

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:34em;margin:10vh auto;padding:0 1em;color:#222;background:#fff}"
    "code{overflow-wrap:anywhere}dt{color:#666}dd{margin:0 0 .8em}"
    "button{font:inherit;padding:.5em 1.5em;margin-right:1em}"
    "p.warning{border-left:4px solid #b50;padding-left:.8em}"
)
_DIGEST = b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_HEADERS = [
    (b"content-type", b"text/html; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
    (
        b"content-security-policy",
        f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; frame-ancestors 'none'".encode(),
    ),
]


async def send_page(send: Send, status: int, page: str, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
    """Answer with a page."""
    body = page.encode()
    head = [*_HEADERS, (b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


def error_page(text: str) -> str:
    """Return the page of an error that cannot be sent to a client."""
    return html_page("This sign-in cannot continue", f"<p>{escape(text)}</p>")


def consent_page(
    client: KnownClient, redirect_uri: str, scopes: Sequence[str], *, server: str, action: str, fields: dict[str, str]
) -> str:
    """Return the question whether a client may act for a person."""
    parts = urlsplit(redirect_uri)
    # The host is the only part that the person can verify: path and query are the client's own words.
    where = parts.hostname or f"{parts.scheme}:"
    rows = [("Application", client.name or "(it gives no name)")]
    if client.source == "document":
        rows.append(("Its publisher", urlsplit(client.client_id).hostname or ""))
    rows += [("Server", server), ("It will be sent to", where)]
    rows.append(("It may", ", ".join(scopes) or "use the server"))
    listed = "".join(f"<dt>{escape(name)}</dt><dd><code>{escape(value)}</code></dd>" for name, value in rows)
    warning = "The name is the application's own: it was not verified."
    if is_loopback_uri(redirect_uri):
        warning += " The answer goes to a program on your own device: continue only if you have just started it."
    hidden = "".join(f'<input type="hidden" name="{escape(k)}" value="{escape(v)}">' for k, v in fields.items())
    form = (
        f'<form method="post" action="{escape(action)}">{hidden}'
        '<button name="decision" value="allow">Allow</button>'
        '<button name="decision" value="deny">Cancel</button></form>'
    )
    return html_page("Allow this application?", f'<dl>{listed}</dl><p class="warning">{escape(warning)}</p>{form}')


def html_page(title: str, body: str) -> str:
    """Return a page; `body` is HTML in which every foreign text is escaped."""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>'
        f"<body><h1>{escape(title)}</h1>{body}</body></html>"
    )
