"""Plans for the files of a component, computed from values alone; does no I/O.

Three texts decide: the copied one (`original`, kept in the lock), the one in the project now, and the catalog's. A
person's edits are lost only by plans with `overwrite` or `force`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal, TypeAlias

from toolweave.components._merge import merge

SIDE = ".new"
"""The ending of a file with the catalog's text beside one that could not be merged."""

OnConflict: TypeAlias = Literal["refuse", "markers", "side"]
"""Policy for lines that both sides changed: change nothing at all, mark them in the file, or write a file beside it."""

Texts: TypeAlias = Mapping[str, str]
Disk: TypeAlias = Mapping[str, bytes]


class Action(StrEnum):
    """The action on a file."""

    CREATE = "create"
    REPLACE = "replace"
    """It is unchanged, or to be overwritten: it gets the catalog's text."""
    MERGE = "merge"
    """The catalog's changes are merged with the user's."""
    CONFLICT = "conflict"
    """As `MERGE`, but some lines were changed on both sides, and a person has to resolve them."""
    DELETE = "delete"
    KEEP = "keep"
    """It stays as it is."""
    REFUSE = "refuse"
    """It stays as it is, and the whole plan must not be applied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStep:
    """The planned action on one file.

    Attributes:
        path: The file, relative to the component's folder.
        action: The action.
        why: Additional reason, or an empty string.
        before: Its bytes now, or None when there is no such file.
        after: Its bytes afterwards, or None when there will be no such file.
        original: Its text in the lock afterwards; None removes it from the lock.
    """

    path: str
    action: Action
    why: str = ""
    before: bytes | None = None
    after: bytes | None = None
    original: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The planned actions on the files of a component."""

    steps: tuple[FileStep, ...]

    @property
    def refused(self) -> tuple[FileStep, ...]:
        """The files that prevent the plan from being applied."""
        return tuple(step for step in self.steps if step.action is Action.REFUSE)

    @property
    def writes(self) -> tuple[FileStep, ...]:
        """The steps that change a file's bytes."""
        return tuple(step for step in self.steps if step.before != step.after)

    @property
    def originals(self) -> dict[str, str]:
        """The texts for the lock afterwards, by path."""
        return {step.path: step.original for step in self.steps if step.original is not None}


def text_of(data: bytes) -> str | None:
    """Return a file's text without the byte order mark and with plain line feeds; None when it is not UTF-8."""
    found = _read(data)
    if found is None:
        return None
    return found[0]


def plan_add(catalog: Texts, originals: Texts, disk: Disk, *, overwrite: bool = False) -> Plan:
    """Plan the copy of a component.

    Args:
        catalog: The component's files.
        originals: Its files as they were copied before, if the project has it already.
        disk: The project's files, of the paths in both.
        overwrite: Replace files that differ.
    """
    steps: list[FileStep] = []
    for path, new in catalog.items():
        before = disk.get(path)
        if before is None:
            steps.append(_to(FileStep(path=path, action=Action.CREATE), new))
        elif text_of(before) == new:
            steps.append(FileStep(path=path, action=Action.KEEP, before=before, after=before, original=new))
        elif overwrite:
            steps.append(_to(FileStep(path=path, action=Action.REPLACE, before=before), new))
        elif path in originals and text_of(before) == originals[path]:
            why = "the catalog has a newer text; `toolweave components update` brings it"
            steps.append(_unchanged(path, before, why, originals[path]))
        else:
            if path in originals:
                why = "you changed it"
            else:
                why = "there is another file of this name"
            steps.append(FileStep(path=path, action=Action.REFUSE, why=why, before=before, after=before))
    dropped = [path for path in originals if path not in catalog]
    why = "the component no longer has it; `toolweave components update` takes it out"
    steps += [_unchanged(path, disk.get(path), why, originals[path]) for path in dropped]
    return Plan(steps=tuple(steps))


def plan_update(
    catalog: Texts, originals: Texts, disk: Disk, *, on_conflict: OnConflict = "refuse", label: str = "the catalog"
) -> Plan:
    """Plan the update of a component: merge the catalog's changes with the user's.

    Args:
        catalog: The component's files as they are now.
        originals: Its files as they were copied.
        disk: The project's files, of the paths in both, and of these with `SIDE` appended.
        on_conflict: Policy for lines that both sides changed.
        label: Label of the catalog's side in conflict markers.
    """
    steps: list[FileStep] = []
    for path in _ordered(catalog, originals):
        before = disk.get(path)
        old = originals.get(path)
        new = catalog.get(path)
        if new is None:
            steps.append(_without(path, before, old))
        elif before is None:
            steps.append(_absent(path, old, new))
        else:
            steps += _updated(
                FileStep(path=path, action=Action.KEEP, before=before), old, new, on_conflict, label, disk
            )
    return Plan(steps=tuple(steps))


def plan_remove(originals: Texts, disk: Disk, *, force: bool = False) -> Plan:
    """Plan the removal of a component; changed files stay, also in the lock.

    Args:
        originals: Its files as they were copied.
        disk: The project's files.
        force: Also delete changed files.
    """
    steps: list[FileStep] = []
    for path, old in originals.items():
        before = disk.get(path)
        if before is None:
            steps.append(FileStep(path=path, action=Action.KEEP, why="it is gone already"))
        elif force or text_of(before) == old:
            steps.append(FileStep(path=path, action=Action.DELETE, before=before))
        else:
            steps.append(_unchanged(path, before, "you changed it", old))
    return Plan(steps=tuple(steps))


def _updated(
    step: FileStep, old: str | None, new: str, on_conflict: OnConflict, label: str, disk: Disk
) -> list[FileStep]:
    """Return the steps for a file that exists in the project and in the catalog."""
    step = replace(step, after=step.before, original=new)
    read = _read(step.before or b"")
    if read is None:
        if old != new:
            return [replace(step, action=Action.REFUSE, why="it is not UTF-8 text", original=old)]
        return [step]
    mine, form = read
    if new in (mine, old):
        return [step]
    if mine == old:
        return [_to(replace(step, action=Action.REPLACE), new, form)]
    merged = merge(old or "", mine, new)
    if not merged.conflicts:
        return [_to(replace(step, action=Action.MERGE), new, form, text=merged.mine())]
    places = ", ".join(str(conflict.line) for conflict in merged.conflicts)
    if old is not None:
        why = f"you and the catalog changed it at line {places}"
    else:
        why = "there is another file of this name"
    if on_conflict == "markers":
        text = merged.marked("yours", label)
        return [_to(replace(step, action=Action.CONFLICT, why=why), new, form, text=text)]
    side = step.path + SIDE
    # A file beside it from an earlier update may have the user's work in it, so another text is never overwritten.
    if on_conflict == "side" and text_of(disk.get(side, new.encode())) == new:
        mine_kept = _to(replace(step, action=Action.CONFLICT, why=f"{why}; see {side}"), new, form, text=merged.mine())
        beside = FileStep(path=side, action=Action.CREATE, before=disk.get(side), after=disk.get(side, new.encode()))
        return [mine_kept, beside]
    if on_conflict == "side":
        why = f"{why}, and there is a file {side} already"
    return [replace(step, action=Action.REFUSE, why=why, original=old)]


def _without(path: str, before: bytes | None, old: str | None) -> FileStep:
    """Return the step for a file that is no longer in the catalog."""
    if before is None:
        return FileStep(path=path, action=Action.KEEP, why="it is gone already")
    if text_of(before) == old:
        return FileStep(path=path, action=Action.DELETE, why="the component no longer has it", before=before)
    return _unchanged(path, before, "the component no longer has it, and you changed it: it is yours now", None)


def _absent(path: str, old: str | None, new: str) -> FileStep:
    """Return the step for a file of the catalog that the project lacks."""
    if old is None:
        return _to(FileStep(path=path, action=Action.CREATE), new)
    return FileStep(path=path, action=Action.KEEP, why="you deleted it", original=new)


def _unchanged(path: str, before: bytes | None, why: str, original: str | None) -> FileStep:
    return FileStep(path=path, action=Action.KEEP, why=why, before=before, after=before, original=original)


class _LineEnding(StrEnum):
    """The line endings of a file."""

    LF = "\n"
    CRLF = "\r\n"


_MARK = b"\xef\xbb\xbf"


def _read(data: bytes) -> tuple[str, tuple[bytes, _LineEnding]] | None:
    """Return a file's text and its byte form (byte order mark, line endings), in which it is written back."""
    mark = _MARK if data.startswith(_MARK) else b""
    try:
        text = data[len(mark) :].decode()
    except UnicodeDecodeError:
        return None
    if "\n" in text and text.count("\n") == text.count("\r\n"):
        return text.replace("\r\n", "\n"), (mark, _LineEnding.CRLF)
    return text, (mark, _LineEnding.LF)


def _to(
    step: FileStep, new: str, form: tuple[bytes, _LineEnding] = (b"", _LineEnding.LF), *, text: str | None = None
) -> FileStep:
    """Return the step with the text to write, by default the catalog's, in the byte form of the file."""
    mark, ends = form
    written = (new if text is None else text).replace("\n", ends)
    return replace(step, after=mark + written.encode(), original=new)


def _ordered(catalog: Iterable[str], originals: Iterable[str]) -> list[str]:
    return list(dict.fromkeys((*catalog, *originals)))
