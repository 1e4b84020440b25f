"""The plan of a gateway for a team: the options of `toolweave gateway init`, and the config that they make."""

from __future__ import annotations

import hashlib
import re
import secrets
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec

from toolweave._json_types import Json, array_or_empty, as_array, as_object
from toolweave.cli._command import Option
from toolweave.cli._exit_codes import CommandError
from toolweave.cli._install.clients import InstallClient
from toolweave.cli._screen import note

ADD_HINT = "a server is NAME=COMMAND ARGS or NAME=URL, such as --add 'time=uvx mcp-server-time'"
_KEY_BYTES = 32
_MAX_LINE = 100
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class InitOptions:
    """The options of `toolweave gateway init`; each attribute is an option."""

    add: Annotated[
        tuple[str, ...],
        Option("--add", "-a", metavar="NAME=SERVER", help="A server: a command or a URL; may be repeated."),
    ] = ()
    name: Annotated[
        str | None, Option("--name", metavar="NAME", help="The name of the gateway; by default that of the file.")
    ] = None
    key: Annotated[
        tuple[str, ...],
        Option("--key", "-k", metavar="PERSON", help="Make an API key for this person; may be repeated."),
    ] = ()
    issuer: Annotated[
        str | None,
        Option("--issuer", metavar="URL", help="Accept the tokens of this sign-in.", needs=["--audience"]),
    ] = None
    audience: Annotated[
        str | None,
        Option("--audience", metavar="URL", help="The URL of the gateway in these tokens.", needs=["--issuer"]),
    ] = None
    read_only: Annotated[bool, Option("--read-only", help="Everyone may call tools that only read, and no others.")] = (
        False
    )
    allow: Annotated[
        tuple[str, ...],
        Option(
            "--allow", metavar="PERSON=SERVER", help="With --read-only: who may call all of a server.", needs=["--key"]
        ),
    ] = ()
    deny: Annotated[
        tuple[str, ...], Option("--deny", metavar="NAMES", help="Tools that no one may call, such as '*_delete_*'.")
    ] = ()
    rate: Annotated[
        int | None,
        Option("--rate", metavar="CALLS", minimum=1, help="Calls a minute for each person and server."),
    ] = None
    audit: Annotated[Path | None, Option("--audit", metavar="FILE", help="Log each request to this file.")] = None
    editor: Annotated[
        tuple[InstallClient, ...], Option("--editor", help="Let this editor start the gateway; may be repeated.")
    ] = ()
    force: Annotated[bool, Option("--force", help="Replace an existing file or editor's entry.")] = False
    as_json: Annotated[bool, Option("--json", help="Print JSON instead of a readable view.")] = False


class TeamPlan(msgspec.Struct, kw_only=True):
    """The parts of a config that were given or answered.

    Attributes:
        name: The name of the gateway.
        servers: The entries of the servers.
        keys: The API keys by person, in clear: they are printed once and their hashes are written.
        sign_in: The section `jwt`, or None.
        rules: The rules of `access_rules`.
        rate: Calls a minute, or None.
        audit: The audit log, or None.
        editors: The editors that start the gateway.
    """

    name: str
    servers: dict[str, Json]
    keys: dict[str, str] = {}
    sign_in: Json | None = None
    rules: list[Json] = []
    rate: int | None = None
    audit: Path | None = None
    editors: tuple[InstallClient, ...] = ()


def team_plan(options: InitOptions, name: str) -> TeamPlan:
    """Return the plan of the options; a new key is made for each person.

    Args:
        options: The options.
        name: The name of the gateway, if the options do not have one.

    Raises:
        CommandError: An option is wrong.
    """
    keys = {person: secrets.token_hex(_KEY_BYTES) for person in map(_checked_name, options.key)}
    servers = dict(map(server_entry, options.add))
    return TeamPlan(
        name=options.name or name,
        servers=servers,
        keys=keys,
        sign_in=None if options.issuer is None else {"issuer": options.issuer, "audience": options.audience},
        rules=_rules(options, servers),
        rate=options.rate,
        audit=None if options.audit is None else options.audit.absolute(),
        editors=options.editor,
    )


def _checked_name(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise CommandError(f"{name!r} is not a name: at most 64 letters, digits, '.', '_' and '-'")
    return name


def server_entry(text: str) -> tuple[str, Json]:
    """Return the name and the entry of a server that was given as `NAME=COMMAND ARGS` or `NAME=URL`.

    Raises:
        CommandError: It is not one, or a secret is among its words.
    """
    from toolweave.config.secret_args import secrets_in  # late, as above
    from toolweave.install import ServerLaunch
    from toolweave.install._programs import with_full_path

    name, equals, rest = text.partition("=")
    try:
        words = shlex.split(rest)
    except ValueError as error:
        raise CommandError(f"--add {name}: {error}", hint=ADD_HINT) from None
    if not equals or not words:
        raise CommandError(f"--add {text!r} is not a server", hint=ADD_HINT)
    _checked_name(name)
    if secrets_in(words):
        raise CommandError(
            f"--add {name}: a secret is among its words, and other programs and your shell's history can read them",
            hint="write ${VARIABLE} in its place, in single quotes; the gateway reads it from its environment",
        )
    command, *args = words
    if re.match(r"https?://", command):
        return name, {"url": command}
    launch, programs = with_full_path(ServerLaunch(command=command, args=tuple((word,) for word in args)))
    for program in programs:
        if program.path is None:
            note(f"warning: {program.remark('the gateway')}")
    entry: Json = {"command": launch.command, "args": args}
    path = launch.env.get("PATH")
    if path is not None:
        entry["env"] = {"PATH": "".join(map(str, path))}
    return name, entry


def _rules(options: InitOptions, servers: dict[str, Json]) -> list[Json]:
    rules: list[Json] = [{"effect": "deny", "names": [names]} for names in options.deny]
    if options.allow and not options.read_only:
        raise CommandError("--allow is of use with --read-only: otherwise everyone may call every tool")
    if options.read_only:
        rules.append({"effect": "allow", "annotations": {"readOnlyHint": True}})
    elif rules:
        rules.append({"effect": "allow"})
    for text in options.allow:
        person, _, server = text.partition("=")
        if person not in options.key or server not in servers:
            raise CommandError(f"--allow {text!r} is not PERSON=SERVER of a --key and an --add")
        rules.append({"effect": "allow", "clients": [person], "servers": [server]})
    return rules


def config_text(plan: TeamPlan) -> str:
    """Return the text of the config, with comments."""
    hashes = {person: {"sha256": hashlib.sha256(key.encode()).hexdigest()} for person, key in plan.keys.items()}
    lines = [
        "// The config of a gateway. `toolweave gateway check FILE` tries it.",
        "{",
        "  // The servers, as in the config of an editor. ${NAME} inserts a variable of the gateway's environment.",
        f'  "mcpServers": {_json(plan.servers, 1)},',
        '  "gateway": {',
        "    // The name that editors and clients show.",
        f'    "name": {_json(plan.name, 2)}',
    ]
    if hashes or plan.sign_in:
        lines[-1] += ","
        lines += _auth_lines(hashes, plan.sign_in)
    entries = list(_middleware(plan))
    if entries:
        lines[-1] += ","
        lines += ["    // What happens around each request, the first outermost.", '    "middleware": [']
        for place, (comment, entry) in enumerate(entries, 1):
            lines += [f"      // {comment}", f"      {_json(entry, 3)}{',' * (place < len(entries))}"]
        lines.append("    ]")
    return "\n".join([*lines, "  }", "}", ""])


def _auth_lines(hashes: Json, sign_in: Json | None) -> list[str]:
    lines = ["    // Who may call over HTTP. Over stdio, such as in an editor, no key is needed.", '    "auth": {']
    if sign_in is not None:
        lines.append(f'      "jwt": {_json(sign_in, 3)}{"," if hashes else ""}')
    if hashes:
        lines += [
            "      // The hashes of keys. `openssl rand -hex 32` makes a key, `printf %s KEY | sha256sum` its hash.",
            f'      "api_keys": {_json(hashes, 3)}',
        ]
    return [*lines, "    }"]


def _middleware(plan: TeamPlan) -> Iterator[tuple[str, Json]]:
    if plan.audit is not None:
        yield (
            "One JSON line for each request: who, what, outcome, duration.",
            {"name": "audit_log", "path": str(plan.audit)},
        )
    if plan.rules:
        yield (
            "Who may call which tools. A tool that no rule allows does not exist for the caller.",
            {
                "name": "access_rules",
                "rules": plan.rules,
            },
        )
    if plan.rate is not None:
        limit: Json = {"name": "rate_limit", "calls": plan.rate, "seconds": 60, "by": ["principal", "server"]}
        yield "Calls of each person to each server.", limit


def _json(value: Any, depth: int) -> str:
    """Return a value as JSON: in one line if that is short, else with a line for each member."""
    import json  # late, as above

    short = json.dumps(value, ensure_ascii=False)
    members = as_object(value)
    is_plain = members is None and as_array(value) is None
    if is_plain or len(short) + 2 * depth <= _MAX_LINE:
        return short
    inner = "  " * (depth + 1)
    if members is None:
        lines = [_json(one, depth + 1) for one in array_or_empty(value)]
        return "[\n" + ",\n".join(inner + line for line in lines) + "\n" + "  " * depth + "]"
    lines = [f"{json.dumps(name, ensure_ascii=False)}: {_json(one, depth + 1)}" for name, one in members.items()]
    return "{\n" + ",\n".join(inner + line for line in lines) + "\n" + "  " * depth + "}"
