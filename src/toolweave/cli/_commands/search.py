"""`toolweave search`: servers in the registry of MCP servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from toolweave._json_types import Json
from toolweave.cli._command import Command, Option, Positional
from toolweave.cli._exit_codes import CommandError, ExitCode
from toolweave.cli._options import JsonOption
from toolweave.cli._runner import run
from toolweave.cli._screen import answer, answer_json, note, show

if TYPE_CHECKING:
    from toolweave.connect import FoundCards
    from toolweave.install import PublishedServer, RegistryPage

_EXAMPLES = """
toolweave search github
toolweave search file system --limit 100
toolweave search --json postgres
toolweave search notes --registry https://registry.example.com
toolweave search https://tools.example
"""

RegistryOption = Annotated[
    str | None,
    Option("--registry", metavar="URL", help="Another registry with the same API; or set TOOLWEAVE_REGISTRY."),
]
_MAX_PROBLEMS = 5


def search(
    words: Annotated[
        tuple[str, ...], Positional("WORDS", help="Words that are all in the name or the description.")
    ] = (),
    registry: RegistryOption = None,
    limit: Annotated[int, Option("--limit", metavar="COUNT", minimum=1, help="How many servers to find.")] = 30,
    cursor: Annotated[str, Option("--cursor", metavar="TEXT", help="Continue where a search ended.")] = "",
    as_json: JsonOption = False,
) -> ExitCode:
    """Find servers in the registry of MCP servers, or at an address.

    For each server: how to get it (a package of npm, pypi, oci, nuget, an mcpb bundle; http or sse if it runs
    elsewhere), and whether its publisher has withdrawn it. Without WORDS, it lists all servers, page by page. The
    texts are the publishers' own. Exits with 3 when the registry cannot be reached.

    With a URL: the servers that an endpoint or a host publishes as cards. Nothing connects to them.
    """
    address = next((word for word in words if word.startswith(("https://", "http://"))), None)
    if address is not None:
        if len(words) > 1:
            raise CommandError("a URL is searched alone, without other words")
        return _search_cards(address, as_json=as_json)

    async def body() -> ExitCode:
        from toolweave.cli._completion import remember_published  # imports are late: --help imports this module
        from toolweave.install import McpRegistry

        found = await McpRegistry(registry).search(*words, cursor=cursor, limit=limit)
        remember_published([server.name for server in found.servers])
        if as_json:
            answer_json(_json(found))
        else:
            _show(found, words)
        return ExitCode.OK

    return run(body)


def _search_cards(url: str, *, as_json: bool) -> ExitCode:
    """Show the server cards at an address."""

    async def body() -> ExitCode:
        import msgspec  # late, as above

        from toolweave.connect import find_server_cards

        found = await find_server_cards(url)
        if as_json:
            answer_json(msgspec.to_builtins(found))
        else:
            _show_cards(found)
        if found.cards:
            return ExitCode.OK
        return ExitCode.UNREACHABLE

    return run(body)


def _show_cards(found: FoundCards) -> None:
    from toolweave.cli._render.text import safe_text  # late, as above
    from toolweave.cli._render.views import summary, table

    rows: list[tuple[str, ...]] = []
    for card in found.cards:
        places = [(one.url, " ".join(one.versions)) for one in card.remotes] or [("", "")]
        rows += [(card.name, card.version, *place, summary(card.description)) for place in places]
    if rows:
        show(table(["name", "version", "url", "revisions", "description"], rows))
    else:
        answer("no server card is there")
    problems = [*found.problems, *(problem for card in found.cards for problem in card.problems)]
    for problem in problems[:_MAX_PROBLEMS]:
        note(safe_text(f"left out: {problem}"))


def server_json(server: PublishedServer) -> Json:
    """Return a published server as JSON."""
    return {
        "name": server.name,
        "version": server.version,
        "title": server.title or None,
        "description": server.description,
        "status": server.status,
        "status_message": server.status_message or None,
        "kinds": list(server.kinds),
        "website": server.website_url or None,
        "published_at": server.published_at or None,
    }


def _json(found: RegistryPage) -> Json:
    return {
        "servers": list(map(server_json, found.servers)),
        "next_cursor": found.next_cursor or None,
        "problems": list(found.problems),
    }


def _show(found: RegistryPage, words: tuple[str, ...]) -> None:
    import shlex  # late, as above

    from toolweave.cli._render.text import safe_text
    from toolweave.cli._render.views import summary, table

    with_state = any(server.status != "active" for server in found.servers)
    columns = ["name", "version", "how", *(["state"] if with_state else []), "description"]
    rows: list[tuple[str, ...]] = []
    for server in found.servers:
        state = (_state(server),) if with_state else ()
        rows.append((server.name, server.version, " ".join(server.kinds), *state, summary(server.description)))
    if rows:
        show(table(columns, rows))
    else:
        answer(f"no server matches {' '.join(words)}" if words else "the registry has no server")
    for problem in found.problems[:_MAX_PROBLEMS]:
        note(f"left out: {problem}")
    if len(found.problems) > _MAX_PROBLEMS:
        note(f"left out: {len(found.problems) - _MAX_PROBLEMS} more")
    if found.next_cursor:
        note(safe_text(f"there are more: --cursor {shlex.quote(found.next_cursor)}"))


def _state(server: PublishedServer) -> str:
    if server.status == "active":
        return ""
    if server.status_message:
        return f"{server.status}: {server.status_message}"
    return server.status


COMMAND = Command(search, examples=_EXAMPLES)
