"""Findings of a doctor: all servers are examined at the same time, and one exit code says how they are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

import anyio

from toolweave._json_types import Json, JsonObject
from toolweave.cli._exit_codes import ExitCode
from toolweave.cli._progress import starting

if TYPE_CHECKING:
    from toolweave.config import LoadedConfig, ServerConfig


async def examine_all(
    selection: LoadedConfig,
    findings: Mapping[str, Json],
    examine: Callable[[ServerConfig], Awaitable[JsonObject]],
) -> None:
    """Examine every server that can be started, and add the results to its finding."""
    with starting(list(selection.servers)) as done:
        async with anyio.create_task_group() as tasks:

            async def one(name: str, config: ServerConfig) -> None:
                findings[name].update(await examine(config))
                done(name)

            for name, config in selection.servers.items():
                tasks.start_soon(one, name, config)


def exit_code_of_findings(
    findings: Mapping[str, JsonObject], *, strict: bool, failed: Callable[[JsonObject], bool]
) -> ExitCode:
    """Return the exit code of findings with `error` and `exit_code`.

    Args:
        findings: By server.
        strict: Whether one server that was not reached counts as a failure.
        failed: Whether something is wrong with a server that was reached.
    """
    reached = [finding for finding in findings.values() if finding["error"] is None]
    if not reached:
        # The config is wrong, and no server is known to be down.
        if all(finding["exit_code"] == ExitCode.USAGE for finding in findings.values()):
            return ExitCode.USAGE
        return ExitCode.UNREACHABLE
    if strict and len(reached) < len(findings):
        return ExitCode.UNREACHABLE
    if any(map(failed, reached)):
        return ExitCode.TOOL_ERROR
    return ExitCode.OK
