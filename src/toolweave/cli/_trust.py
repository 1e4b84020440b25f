"""Consent to the content of a project's config file, before any of its servers is started.

A discovered file may have come with a checkout, and its servers run with the user's rights. Consent is stored by
`toolweave.config.TrustedFiles`; files that were named with `--config` need none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from toolweave.cli._exit_codes import CommandError, ExitCode
from toolweave.cli._render.text import safe_text
from toolweave.cli._screen import note
from toolweave.config import LoadedConfig, LoadedFile, TrustedFiles

_NAMES = 5


async def require_trust(loaded: LoadedConfig) -> None:
    """Return once every project file with one of these servers is trusted; ask a person about those that are not.

    Raises:
        CommandError: The person said no, or no one can be asked (`ExitCode.UNTRUSTED`); nothing was started.
    """
    from toolweave.cli._questions import ask_about  # imports are late: not every command asks
    from toolweave.cli._stdin import can_ask

    trusted = TrustedFiles()
    for file in trusted.untrusted(loaded):
        if not can_ask():
            raise _nobody_to_ask(file, loaded)
        answer = await ask_about(_described(file, loaded), "start them, now and until the file changes?", "[y]es, [n]o")
        if answer not in ("y", "yes"):
            raise CommandError(
                f"{file.path} is not trusted; nothing was started",
                code=ExitCode.UNTRUSTED,
                hint="--config FILE uses the servers of another file",
            )
        trust_file(file, trusted)


def trust_file(file: LoadedFile, trusted: TrustedFiles | None = None) -> None:
    """Store a file as trusted; warn if that cannot be stored."""
    store = trusted or TrustedFiles()
    try:
        store.trust(file)
    except OSError as error:
        note(f"warning: this cannot be remembered in {store.path}: {error.strerror or error}")


def write_trusted(file: Path, text: str) -> None:
    """Write a file as a whole or not at all, readable by its owner alone: entries may hold secrets. It is trusted.

    Raises:
        CommandError: It cannot be written.
    """
    from toolweave.config import content_digest  # late, as above
    from toolweave.config._jsonc import parse_json
    from toolweave.config.trust import write_privately

    try:
        write_privately(file, text.encode())
    except OSError as exc:
        raise CommandError(f"cannot write {str(file)!r}: {exc.strerror or exc}") from None
    trust_file(LoadedFile(path=file, digest=content_digest(parse_json(text))))


def _nobody_to_ask(file: LoadedFile, loaded: LoadedConfig) -> CommandError:
    names = [entry.name for entry in loaded.entries if entry.path == file.path and entry.status == "ready"]
    shown = ", ".join(names[:_NAMES]) + (f" and {len(names) - _NAMES} more" if len(names) > _NAMES else "")
    return CommandError(
        f"{file.path} came with this folder and was not trusted yet, so nothing was started; it has the servers"
        f" {shown}",
        code=ExitCode.UNTRUSTED,
        hint=f"read it, then give --trust, or --config {file.path}; in a terminal the same command asks once",
    )


def _described(file: LoadedFile, loaded: LoadedConfig) -> str:
    """Return the servers that a file would start, verbatim: no variable is expanded, and nothing is left out."""
    lines = [f"{file.path} came with this folder. It has these servers, which would run with your rights:"]
    lines += [f"  {safe_text(line)}" for line in _entries(file, loaded)]
    if file.inputs:
        lines.append(f"  where ${{input:...}} is one of {_json(dict(file.inputs))}")
    return "\n".join(lines)


def _entries(file: LoadedFile, loaded: LoadedConfig) -> Iterator[str]:
    for entry in loaded.entries:
        if entry.path == file.path:
            if entry.status == "ready":
                not_now = ""
            else:
                not_now = f" (not now: {entry.reason})"
            yield f"{entry.name}{not_now}: {_json(entry.raw)}"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
