"""`toolweave components`: the copied components of a project, the changes on either side, and their update."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from toolweave._json_types import Json
from toolweave.cli._command import Command, CommandGroup, Option, Positional
from toolweave.cli._completion import starting_with
from toolweave.cli._exit_codes import CommandError, ExitCode
from toolweave.cli._options import JsonOption
from toolweave.cli._screen import answer, answer_json, note, show, wide

if TYPE_CHECKING:
    from toolweave.components import ComponentChange, FileState, Project

_EXAMPLES = {
    "list": """
toolweave components list
toolweave components list --json
""",
    "diff": """
toolweave components diff
toolweave components diff mcp-server
""",
    "update": """
toolweave components update
toolweave components update mcp-server --dry-run
toolweave components update --on-conflict markers
""",
    "remove": """
toolweave components remove mcp-client
toolweave components remove mcp-client --force
""",
}


def offered(incomplete: str) -> list[str]:
    """Return the names of components that start with `incomplete`, for shell completion."""
    from toolweave.components import component_names  # only when a shell asks

    return starting_with(incomplete, component_names())


def _present(incomplete: str) -> list[str]:
    from toolweave.components import Project

    try:
        return starting_with(incomplete, Project.at(Path.cwd()).manifest.folders)
    except Exception:  # boundary: completion stays silent
        return []


_ComponentNames = Annotated[
    tuple[str, ...], Positional("COMPONENT", help="The components; by default all.", complete=_present)
]
DryRunOption = Annotated[bool, Option("--dry-run", help="Show what would happen, and change nothing.")]


class ConflictPolicy(StrEnum):
    """Policy of `update` for lines that both sides changed."""

    REFUSE = "refuse"
    MARKERS = "markers"
    SIDE = "side"


def list_components(as_json: JsonOption = False) -> ExitCode:
    """List the components of the catalog and of this project."""
    from toolweave.components import Project, component, component_names  # imports are late: --help imports this module

    project = Project.at(Path.cwd())
    names = sorted({*component_names(), *project.manifest.folders})
    entries: list[Json] = []
    for name in names:
        description = "not in this version's catalog"
        if name in component_names():
            description = component(name).description
        entry: Json = {"component": name, "description": description, "dir": None}
        if name in project.manifest.folders:
            entry |= _state(project, name)
        entries.append(entry)
    if as_json:
        answer_json({"project": str(project.root), "components": entries})
        return ExitCode.OK
    from toolweave.cli._render.views import table

    rows = [(entry["component"], entry["dir"] or "", _in_words(entry), entry["description"]) for entry in entries]
    show(table(["component", "folder", "state", "description"], rows))
    return ExitCode.OK


def diff(names: _ComponentNames = (), as_json: JsonOption = False) -> ExitCode:
    """Show your edits, and the changes in the catalog."""
    project, chosen = _chosen(names)
    found = {name: project.files(name) for name in chosen}
    if as_json:
        answer_json({"components": [_diff_json(project, name, files) for name, files in found.items()]})
        return ExitCode.OK
    for name, files in found.items():
        folder = project.manifest.folders[name]
        edits: list[str] = []
        updates: list[str] = []
        for file in files:
            if file.edited:
                edits += _edits(folder, file)
            if file.outdated:
                updates += _updates(folder, file)
        _show_diff(f"{name}: your edits", edits)
        _show_diff(f"{name}: new in the catalog", updates)
        if not edits and not updates:
            note(f"{name}: as it was copied, and the catalog has nothing new")
    return ExitCode.OK


def update(
    names: _ComponentNames = (),
    dry_run: DryRunOption = False,
    on_conflict: Annotated[
        ConflictPolicy,
        Option(
            "--on-conflict",
            help="Where you and the catalog changed the same lines: change nothing at all, mark both in the file, or "
            "keep yours and write the catalog's file beside it, with .new behind its name.",
        ),
    ] = ConflictPolicy.REFUSE,
    as_json: JsonOption = False,
) -> ExitCode:
    """Merge the changes of the catalog with your edits.

    This is a three-way merge by lines of the copied files, your edits and the current files of the catalog. None of
    your edits is lost. Exits with 1 if you and the catalog changed the same lines. Then no file is changed, unless
    --on-conflict allows it.
    """
    project, chosen = _chosen(names)
    jobs = [project.update(name, on_conflict=on_conflict.value) for name in chosen if names or name in offered("")]
    refused: list[str] = []
    for job in jobs:
        refused += (f"{job.folder}/{step.path}" for step in job.refused)
    if not dry_run and not refused:
        project.carry_out(*jobs)
    if as_json:
        answer_json({"components": [job_json(job, dry_run=dry_run, refused=bool(refused)) for job in jobs]})
        if refused:
            return ExitCode.TOOL_ERROR
        return ExitCode.OK
    show_jobs(jobs)
    if refused:
        hint = "--on-conflict markers marks both sides in the file, --on-conflict side writes the new one beside yours"
        raise CommandError(f"nothing was updated, for {', '.join(refused)}", code=ExitCode.TOOL_ERROR, hint=hint)
    if dry_run:
        note("nothing was changed (--dry-run)")
    elif not any(job.plan.writes for job in jobs):
        note("everything is up to date")
    return ExitCode.OK


def remove(
    names: Annotated[tuple[str, ...], Positional("COMPONENT", help="The components.", complete=_present)],
    force: Annotated[bool, Option("--force", help="Also delete the files that you changed.")] = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> ExitCode:
    """Take components out of this project.

    Files that you changed stay, and the exit code is 1. --force deletes them.
    """
    project, chosen = _chosen(names)
    jobs = [project.remove(name, force=force) for name in chosen]
    if not dry_run:
        project.carry_out(*jobs)
    kept: list[str] = []
    for job in jobs:
        kept += (f"{job.folder}/{path}" for path in job.plan.originals)
    code = ExitCode.TOOL_ERROR if kept else ExitCode.OK
    if as_json:
        answer_json({"components": [job_json(job, dry_run=dry_run) for job in jobs]})
        return code
    show_jobs(jobs)
    if dry_run:
        note("nothing was changed (--dry-run)")
    if kept:
        note(f"left, because you changed it: {', '.join(kept)}; --force deletes it too")
    return code


_HELP = "See, update and remove components that `toolweave add` copied."


def show_jobs(jobs: Iterable[ComponentChange]) -> None:
    """Show the action on each file that is affected."""
    from toolweave.cli._render.views import table

    rows: list[tuple[str, str, str]] = []
    for job in jobs:
        steps = [step for step in job.plan.steps if step.why or step.before != step.after]
        rows += ((f"{job.folder}/{step.path}", step.action.value, step.why) for step in steps)
    if rows:
        show(table(["file", "action", "why"], rows))


def job_json(job: ComponentChange, *, dry_run: bool, refused: bool = False) -> Json:
    """Return the planned change of a component as JSON; `refused` if another component prevented it."""
    steps = job.plan.steps
    return {
        "component": job.component,
        "dir": job.folder,
        "done": not any((dry_run, refused, job.refused)),
        "files": [{"path": step.path, "action": step.action.value, "why": step.why or None} for step in steps],
    }


def _chosen(names: Sequence[str]) -> tuple[Project, list[str]]:
    """Return the project and the chosen components, each once."""
    from toolweave.components import Project

    project = Project.at(Path.cwd())
    chosen = list(dict.fromkeys(names or sorted(project.manifest.folders)))
    if not chosen:
        raise CommandError("this project has no components", hint="toolweave add COMPONENT copies one")
    return project, chosen


def _state(project: Project, name: str) -> Json:
    copied = project.lock.components.get(name)
    files = project.files(name)
    return {
        "dir": project.manifest.folders[name],
        "version": copied.version if copied is not None else None,
        "edited": [file.path for file in files if file.edited],
        "outdated": [file.path for file in files if file.outdated],
    }


def _in_words(entry: Json) -> str:
    if entry["dir"] is None:
        return ""
    words = [f"{len(entry[state])} {state}" for state in ("edited", "outdated") if entry[state]]
    return ", ".join(words) or "as copied"


def _edits(folder: str, file: FileState) -> Iterator[str]:
    return _unified(file.original, file.mine, f"copied/{file.path}", f"{folder}/{file.path}")


def _updates(folder: str, file: FileState) -> Iterator[str]:
    return _unified(file.original, file.catalog, f"copied/{file.path}", f"catalog/{file.path}")


def _unified(old: str | None, new: str | None, before: str, after: str) -> Iterator[str]:
    if old is None:
        before = "/dev/null"
    if new is None:
        after = "/dev/null"
    return difflib.unified_diff(_lines(old), _lines(new), before, after, lineterm="")


def _lines(text: str | None) -> list[str]:
    if text is None:
        return []
    *lines, last = text.split("\n")
    if last:
        return [*lines, f"{last}\n\\ No newline at end of file"]
    return lines


def _diff_json(project: Project, name: str, files: Sequence[FileState]) -> Json:
    folder = project.manifest.folders[name]
    return {"component": name, "dir": folder, "files": [_file_json(folder, file) for file in files]}


def _file_json(folder: str, file: FileState) -> Json:
    return {
        "path": file.path,
        "edited": file.edited,
        "outdated": file.outdated,
        "edits": "\n".join(_edits(folder, file)) if file.edited else None,
        "news": "\n".join(_updates(folder, file)) if file.outdated else None,
    }


def _show_diff(title: str, lines: Sequence[str]) -> None:
    if not lines:
        return
    if not wide():
        answer("\n".join([f"# {title}", *lines]))
        return
    from toolweave.cli._render.views import difference, heading

    show(heading(title), *map(difference, lines))


COMMAND = CommandGroup(
    _HELP,
    {
        "list": Command(list_components, examples=_EXAMPLES["list"]),
        "diff": Command(diff, examples=_EXAMPLES["diff"]),
        "update": Command(update, examples=_EXAMPLES["update"]),
        "remove": Command(remove, examples=_EXAMPLES["remove"]),
    },
)
