"""Tokens in one file that only its user can read; encrypted if there is a key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeVar

import anyio.to_thread

from toolweave.config import Secret
from toolweave.oauth._records import TokenKey, TokenRecord
from toolweave.oauth._stores.locks import held, private_folder
from toolweave.oauth._stores.records import name_of, newest_first
from toolweave.oauth._stores.sealing import configured_key
from toolweave.oauth._stores.token_file import TokenFile, default_folder

T = TypeVar("T")


class FileTokenStore:
    """A `TokenStore` in one file that only its owner can read, written as a whole or not at all.

    Only its owner can read the file (0600) and its folder (0700). A file is refused if it is a link, belongs to another
    user or can be read by others, and a file that cannot be read is never overwritten. Any number of processes of a
    machine may use it.

    Args:
        path: The file; by default `tokens.json` in the `tokens` folder of the user's data.
        key: Encrypts the file (AES-256-GCM): 32 bytes in base64; by default the environment's `TOOLWEAVE_TOKEN_KEY`.
            Several with commas between them: the first encrypts, each can decrypt. A file that is not encrypted yet is
            encrypted at the next write.

    Raises:
        StoreError: The key is not 32 bytes in base64.
    """

    def __init__(self, path: str | Path | None = None, *, key: str | Secret | None = None) -> None:
        if path is None:
            path = default_folder() / "tokens.json"
        # independent of later changes of the working directory
        self._path = Path(path).expanduser().absolute()
        self._cipher = configured_key(key)

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    async def load(self, key: TokenKey) -> TokenRecord | None:
        """Return the record of a key, or None.

        Raises:
            StoreError: The file cannot be read, or is not the owner's alone.
        """
        return (await self._with_file(TokenFile.read)).get(name_of(key))

    async def save(self, record: TokenRecord) -> None:
        """Store a record, replacing the one with its key.

        Raises:
            StoreError: The file cannot be read or written; it is unchanged then.
        """

        def put(records: dict[str, TokenRecord]) -> bool:
            records[name_of(record.key)] = record
            return True

        await self._with_file(lambda file: file.change(put), writes=True)

    async def delete(self, key: TokenKey) -> bool:
        """Delete the record of a key; return whether there was one.

        Raises:
            StoreError: The file cannot be read or written; it is unchanged then.
        """

        def drop(records: dict[str, TokenRecord]) -> bool:
            return records.pop(name_of(key), None) is not None

        return await self._with_file(lambda file: file.change(drop), writes=True)

    async def records(self, *, resource: str | None = None, principal: str | None = None) -> Sequence[TokenRecord]:
        """Return the records of a resource, of a principal, or all, the newest first.

        Raises:
            StoreError: The file cannot be read, or is not the owner's alone.
        """
        return newest_first((await self._with_file(TokenFile.read)).values(), resource=resource, principal=principal)

    def locked(self, key: TokenKey, *, seconds: float) -> AbstractAsyncContextManager[None]:
        """Hold the record of a key alone, among all processes of this machine.

        Raises:
            StoreError: Another holder keeps it for longer than these seconds.
        """
        private_folder(self._path.parent)
        path = self._path.with_name(f"{self._path.name}.{name_of(key)}.lock")
        return held(path, seconds=seconds, what=f"the token for {key.resource}")

    def __repr__(self) -> str:
        if self._cipher is None:
            return f"<FileTokenStore {str(self._path)!r}>"
        return f"<FileTokenStore {str(self._path)!r}, encrypted>"

    async def _with_file(self, work: Callable[[TokenFile], T], *, writes: bool = False) -> T:
        """Run work with the file in a thread, to its end also when its caller is cancelled: it is never half done."""
        return await anyio.to_thread.run_sync(work, TokenFile(self._path, self._cipher))
