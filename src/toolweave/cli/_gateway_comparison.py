"""`toolweave doctor --through`: the features of a server that clients lose behind a gateway."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from toolweave._json_types import Json, JsonObject
from toolweave.cli._exit_codes import ExitCode, exit_code_of
from toolweave.cli._options import Target
from toolweave.cli._screen import answer, answer_json, note, show, wrapped

if TYPE_CHECKING:
    from toolweave.config import ServerConfig


async def through_gateway(target: Target, *, gateway: str | None, as_json: bool, strict: bool) -> ExitCode:
    """Compare every chosen server with the clients' view of it through a gateway, and show the differences.

    Args:
        target: The servers.
        gateway: The URL of a gateway that runs; None makes one for each server.
        as_json: Whether to print JSON.
        strict: Whether one server that fails counts as a failure.
    """
    from toolweave.cli._findings import (  # imports are late: --help imports this module
        examine_all,
        exit_code_of_findings,
    )
    from toolweave.cli._targets import names_in, select

    selection = await select(target)
    findings = {name: _failed(selection.errors.get(name)) for name in names_in(selection)}
    await examine_all(selection, findings, lambda config: _examine(config, gateway))
    if as_json:
        answer_json({"servers": findings})
    else:
        _show(findings)
    return exit_code_of_findings(
        findings, strict=strict, failed=lambda finding: any(client["lost"] for client in finding["clients"])
    )


def _failed(error: Exception | None) -> Json:
    return {"error": None if error is None else str(error), "exit_code": int(ExitCode.USAGE), "clients": []}


async def _examine(config: ServerConfig, gateway: str | None) -> Json:
    import msgspec  # late, as above

    from toolweave.errors import ToolweaveError
    from toolweave.gateway import compare_through

    try:
        found = await compare_through(config, gateway=gateway)
    except ToolweaveError as error:
        return {**_failed(error), "exit_code": int(exit_code_of(error))}
    return {"error": None, "exit_code": 0, "clients": msgspec.to_builtins(found)}


def _show(findings: Mapping[str, JsonObject]) -> None:
    from toolweave.cli._render.text import safe_text  # late, as above
    from toolweave.cli._render.views import heading

    for name, finding in findings.items():
        if finding["error"] is not None:
            note(f"failed: {finding['error']}")
            continue
        for client in finding["clients"]:
            count = len(client["lost"])
            said = f"{count} lost" if count else "nothing is lost"
            show(heading(name, f"{client['server']} for a client of {client['client']}", said))
            lines = [f"  ✗ {one['kind']} {one['name']} {one['reason']}" for one in client["lost"]]
            lines += [f"  – {limit}" for limit in client["limits"]]
            if lines:
                answer("\n".join(wrapped(safe_text(line, multiline=True), indent=4) for line in lines))
