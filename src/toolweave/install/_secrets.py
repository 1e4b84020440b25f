"""Secrets of installed servers: each in a file that only its owner can read, to which a config refers."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from toolweave.config.trust import write_privately
from toolweave.errors import StoreError
from toolweave.install._launch import ServerLaunch
from toolweave.oauth._stores.locks import private_folder


def installed_folder() -> Path:
    """Return the folder of this user's installed bundles, and of the files that installed servers refer to."""
    from platformdirs import user_data_path  # only where no folder is given

    return user_data_path("toolweave", appauthor=False)


class SecretFiles:
    """The files of one installed server's secrets (0600, in a folder of 0700); nothing is written before `keep`.

    Args:
        server: The name of its entry.
        owner: Texts that distinguish it from other servers of that name, such as the config's path and the published
            name, so that no server gets the secrets of another.
        base: The folder for all of them; by default below the user's data.

    Attributes:
        folder: Their folder.
    """

    def __init__(self, server: str, *owner: str, base: Path | None = None) -> None:
        digest = hashlib.sha256("\0".join((server, *owner)).encode()).hexdigest()[:12]
        self.folder: Path = (installed_folder() if base is None else base) / "secrets" / f"{_plain(server)}-{digest}"

    def paths(self, launch: ServerLaunch) -> dict[str, Path]:
        """Return the file of each secret, by its name."""
        return {secret.name: self.folder / _file_name(secret.name) for secret in launch.secrets}

    def keep(self, launch: ServerLaunch) -> list[Path]:
        """Write the secrets, each whole or not at all, and return their files.

        Raises:
            StoreError: The folder is not the user's own, or cannot be written.
        """
        paths = self.paths(launch)
        written: list[Path] = []
        for secret in launch.secrets:
            if secret.value is None:  # the program that starts the server asks for it
                continue
            if not written:
                private_folder(self.folder)
            path = paths[secret.name]
            try:
                write_privately(path, secret.value.reveal().encode())
            except OSError as exc:
                raise StoreError(f"cannot write {str(path)!r}: {exc.strerror or exc}") from None
            written.append(path)
        return written


def _file_name(name: str) -> str:
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    if re.fullmatch(r"[A-Za-z0-9_]{1,100}", name):
        return name
    # With a digest, because two names may become the same plain one, and would share a file.
    return f"{_plain(name)}-{digest}"


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]+", "-", name).strip("-")[:80] or "server"
