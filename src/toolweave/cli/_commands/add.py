"""`toolweave add`: a component's source code, copied into the project."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from toolweave.cli._command import Command, Option, Positional
from toolweave.cli._commands.components import DryRunOption, job_json, offered, show_jobs
from toolweave.cli._exit_codes import CommandError, ExitCode
from toolweave.cli._options import JsonOption
from toolweave.cli._screen import answer_json, note

_EXAMPLES = """
toolweave add mcp-server
toolweave add mcp-client --dir src/app/mcp
toolweave add agent --dry-run
"""


def add(
    name: Annotated[str, Positional("COMPONENT", help="What to copy.", complete=offered)],
    folder: Annotated[
        Path | None, Option("--dir", metavar="DIR", help="The folder for its files; by default its name.")
    ] = None,
    dry_run: DryRunOption = False,
    overwrite: Annotated[bool, Option("--overwrite", help="Replace files that are there and differ.")] = False,
    as_json: JsonOption = False,
) -> ExitCode:
    """Copy a component's source code into this project.

    The code is yours from then on: edit it. `toolweave components update` brings the changes of later versions,
    beside your edits. The copied versions are recorded in toolweave-components.json and toolweave-components.lock;
    keep both in your version control. If a file exists and differs, nothing is changed, and the exit code is 1.
    """
    from toolweave.components import Project, component  # --help imports this module

    project = Project.at(Path.cwd())
    job = project.add(name, folder, overwrite=overwrite)
    if not dry_run and not job.refused:
        project.carry_out(job)
    if as_json:
        answer_json(job_json(job, dry_run=dry_run))
        if job.refused:
            return ExitCode.TOOL_ERROR
        return ExitCode.OK
    show_jobs([job])
    if job.refused:
        hint = "--overwrite replaces those files; --dir names another folder"
        raise CommandError(f"nothing was copied: {_files(len(job.refused))}", code=ExitCode.TOOL_ERROR, hint=hint)
    if dry_run:
        note("nothing was changed (--dry-run)")
        return ExitCode.OK
    note(f"{name} is in {job.folder}; next:")
    first, *below = Path(job.folder).parts
    module = ".".join(below if below and first == "src" else [first, *below])
    for line in component(name).usage:
        note("  " + line.replace("{module}", module))
    needed = component(name).reads
    if needed is not None and not Path(needed).exists():
        note(f"it reads its servers from {needed}, which is not here yet: toolweave init writes one to begin with")
    return ExitCode.OK


def _files(count: int) -> str:
    if count == 1:
        return "a file differs"
    return f"{count} files differ"


COMMAND = Command(add, examples=_EXAMPLES)
