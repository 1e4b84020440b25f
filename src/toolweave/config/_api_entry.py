"""An entry that names an OpenAPI document: the program that serves the API, which is `toolweave serve --openapi`."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

from toolweave._json_types import Json, JsonObject, as_object, object_or_empty, without_members
from toolweave.config._auth import Auth
from toolweave.config._secret import reveal
from toolweave.config._value_readers import read_flag
from toolweave.config.validation import check_object, check_text, check_url
from toolweave.errors import ConfigError

_AUTH = "TOOLWEAVE_API_TOKEN"
_HEADERS = "TOOLWEAVE_API_HEADERS_SECRET"
_URL = ("http://", "https://")


def as_program(out: JsonObject, values: JsonObject, path: Callable[[str], Path]) -> Json:
    """Return the arguments of the program that serves an API.

    Credentials and headers are in its environment, which other users of the machine cannot read.

    Args:
        out: The arguments of the entry, as far as they are read.
        values: The entry with its variables expanded: `openapi`, and `base_url` if it has one.
        path: Resolves a path of the entry.

    Raises:
        ConfigError: It names another server beside the API, or an API does not accept its credentials.
    """
    document = check_text(values["openapi"], "openapi")
    if re.fullmatch(r"[0-9]+(\.[0-9]+)*", document):
        raise ConfigError("'openapi' names a document by its URL or path; this is a document itself", field="openapi")
    for other in ("command", "url", "server", "transport"):
        if out.get(other):
            raise ConfigError(f"'openapi' and {other!r} are two servers; leave one of them out", field=other)
    if document.startswith(_URL):
        source = check_url(document, "openapi")
    else:
        source = str(path(document).absolute())
    # Everything else in the entry stays: the server is an ordinary process from here on, with its filters, bounds and
    # sandbox. Only what the API receives moves from the connection to the process.
    words = ["-m", "toolweave", "serve", "--openapi", source]
    if values.get("base_url") is not None:
        words += ["--base-url", check_url(check_text(values["base_url"], "base_url"), "base_url")]
    env = dict(check_object(out.get("env", {}), "env"))
    if out.get("auth") is not None:
        words += ["--auth-env", _AUTH]
        env[_AUTH] = _credentials(out["auth"])
    if out.get("headers"):
        words += ["--headers-env", _HEADERS]
        env[_HEADERS] = json.dumps(dict(check_object(out["headers"], "headers")), default=reveal)
    # The process repairs what arrives, too: the switch of the entry has to reach it.
    if not read_flag(out.get("repair_arguments", True), "repair_arguments"):
        words.append("--no-repair")
    kept = without_members(out, "auth", "headers")
    return {**kept, "transport": "stdio", "command": sys.executable or "python3", "args": words, "env": env}


def _credentials(auth: object) -> str:
    """Return a token as it is, anything else as JSON."""
    if isinstance(auth, Auth) or object_or_empty(auth).get("type") == "oauth":
        auth = _client_credentials(auth)
    if isinstance(auth, Auth) or auth == "oauth":
        raise ConfigError(
            "an API has no sign-in: give a token as 'auth', a 'client_id' with its 'client_secret', or an "
            "object of credentials by the names of the document's security schemes",
            field="auth",
        )
    if as_object(auth) is not None:
        return json.dumps(auth, default=reveal)
    return check_text(auth, "auth", controls=False)


def _client_credentials(auth: object) -> object:
    """Return a sign-in as the settings by which a client gets tokens for itself; any other authorization as it is."""
    parsed = Auth.of(auth)
    if parsed is None or parsed.oauth is None:
        return auth
    return {"type": "oauth", **parsed.oauth.of_client().to_mapping()}
