"""Remarks of `toolweave doctor` about entries in editors' files whose programs are found by this shell's PATH alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolweave.config import ServerConfig


def remarks_on_path(config: ServerConfig) -> list[str]:
    """Return the remarks about a server of an editor's file, and about the servers that our gateway starts for it."""
    from toolweave.config import editor_config_files  # imports are late: --help imports the command
    from toolweave.install._programs import programs_of

    if config.source is None:
        return []
    place = Path(config.source.path).resolve()
    if all(file.path.resolve() != place for file in editor_config_files()):
        return []
    servers = [config]
    if "PATH" not in config.env:
        servers += _behind(config.args)
    remarks = [program.remark("the program of this file") for program in programs_of(servers)]
    return [f"{remark}; write the full path, or PATH into its variables" for remark in remarks if remark]


def _behind(args: Sequence[str]) -> list[ServerConfig]:
    """Return the servers of the configs that a command of ours serves; none for another command."""
    from toolweave.config import load_config  # late, as above
    from toolweave.errors import ConfigError

    if not ("toolweave" in args and {"gateway", "serve"} & set(args)):
        return []
    found: list[ServerConfig] = []
    for option, value in pairwise(args):
        if option != "--config":
            continue
        try:
            found += load_config(value).servers.values()
        except ConfigError:
            continue  # the server says so itself when it is started
    return found
