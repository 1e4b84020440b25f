"""Tokens in an encrypted file whose key is in the keyring of the machine.

Keyrings are Secret Service, KWallet, macOS Keychain and Windows Credential Locker.
"""

# The keyring has one value, which is short and never changes. So there is nothing that a crash could leave half written
# in it, and nothing that is too long for it: all that changes is in the file.

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio
import anyio.to_thread

from toolweave.config import Secret
from toolweave.errors import StoreError, ToolweaveError
from toolweave.oauth._stores.file_store import FileTokenStore
from toolweave.oauth._stores.locks import held_in_thread, private_folder
from toolweave.oauth._stores.records import digest
from toolweave.oauth._stores.sealing import KEY_VARIABLE, TokenCipher, new_key
from toolweave.oauth._stores.token_file import TokenFile, default_folder

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

T = TypeVar("T")

_MIN_PRIORITY = 1
"""The priority of a backend that keeps secrets. Files without encryption have less, and no keyring has 0."""
ANSWER_SECONDS = 60.0
"""Seconds for the keyring to answer: the user may have to unlock it."""
_LOCK_SECONDS = 10.0
_ENTRY = "key for tokens"


def machine_keyring() -> KeyringBackend | None:
    """Return the keyring of this machine, or None if it has none that keeps secrets or `keyring` is not installed.

    A backend that keeps them in a file without encryption is not used.
    """
    # imported only when tokens are stored: it takes 0.1 s
    try:
        import keyring
    except ModuleNotFoundError:
        return None
    try:
        chosen = keyring.get_keyring()
        # A chain of backends has `backends`. Only the first usable one is used: a token that is written to one must be
        # found there, so the next one is never tried.
        backends: Sequence[KeyringBackend] = getattr(chosen, "backends", ()) or (chosen,)
        for backend in backends:
            if _priority(backend) >= _MIN_PRIORITY:
                return backend
    except Exception:  # boundary: backends are loaded by this; a keyring that cannot be loaded is not used
        return None
    return None


class KeyringTokenStore(FileTokenStore):
    """A `TokenStore` in an encrypted file, with its key in the machine's keyring (`pip install 'toolweave[keyring]'`).

    The key is made at the first write. Only a keyring that keeps secrets is used, never a file without encryption. A
    file whose key is gone from the keyring is never overwritten. Any number of processes of a machine may use it.

    If `TOOLWEAVE_TOKEN_KEY` is set, it encrypts the file from the next write on, and the keyring is used only to read
    what was encrypted before.

    Args:
        backend: The keyring; by default the keyring of this machine.
        service: The name in the keyring.
        path: The file; by default one for the service, in the `tokens` folder of the user's data. A file that is not
            encrypted yet is encrypted at the next write.

    Raises:
        StoreError: This machine has no keyring, or the package `keyring` is missing.
    """

    def __init__(
        self, backend: KeyringBackend | None = None, *, service: str = "toolweave", path: str | Path | None = None
    ) -> None:
        found = machine_keyring() if backend is None else backend
        if found is None:
            raise StoreError(
                "this machine has no keyring that keeps secrets, or the package keyring is missing: "
                "pip install 'toolweave[keyring]', or keep tokens in a FileTokenStore"
            )
        if _priority(found) < _MIN_PRIORITY:
            raise StoreError(f"the keyring {_name(found)} does not keep secrets; keep tokens in a FileTokenStore")
        self._keyring = found
        # `keyring` has no type for this
        self._set: Callable[[str, str, str], None] = cast("Any", found).set_password
        self._service = service
        self._given: Secret | None = None
        if given := os.environ.get(KEY_VARIABLE):
            self._given = Secret(given)
        if path is None:
            path = default_folder() / f"keyring.{digest(service)}.json"
        super().__init__(path)

    def __repr__(self) -> str:
        return f"<KeyringTokenStore {str(self._path)!r}, with its key in {_name(self._keyring)}>"

    async def _with_file(self, work: Callable[[TokenFile], T], *, writes: bool = False) -> T:
        """Run work with the file in a thread, which completes its work even after its caller was cancelled."""

        def run() -> T:
            # The keyring is asked before the file is locked: its user may take a minute to unlock it.
            return work(self._file(writes=writes))

        try:
            # Abandoned: a locked keyring may never answer, and a thread cannot be cancelled.
            with anyio.fail_after(ANSWER_SECONDS):
                return await anyio.to_thread.run_sync(run, abandon_on_cancel=True)
        except TimeoutError:
            raise StoreError(
                f"the keyring {_name(self._keyring)} did not answer within {ANSWER_SECONDS:g} s; is it locked?"
            ) from None
        except ToolweaveError:
            raise
        except Exception as exc:  # boundary: backends raise errors of their own, and of the libraries below
            raise StoreError(f"the keyring {_name(self._keyring)} failed: {type(exc).__name__}: {exc}") from exc

    # in a thread

    def _file(self, *, writes: bool) -> TokenFile:
        """Return the file with the keys that open it."""
        # with TOOLWEAVE_TOKEN_KEY, the keyring is asked only for what was encrypted before that was set
        if _opens(self._path, self._cipher):
            return TokenFile(self._path, self._cipher)
        key = self._get()
        if key is None and writes:
            key = self._make_key()
        if key is None:
            return TokenFile(self._path, self._cipher, no_key=self._no_key())
        return TokenFile(self._path, self._cipher_with(key))

    def _get(self) -> str | None:
        return self._keyring.get_password(self._service, _ENTRY)

    def _make_key(self) -> str | None:
        """Return the key in the keyring, which is made if no other process was faster.

        None if the file is encrypted already: a new key could not open it.
        """
        if TokenFile(self._path).is_sealed():
            return None
        folder = default_folder()
        private_folder(folder)
        lock = folder / f"keyring.{digest(self._service)}.lock"
        # One lock for the entry in the keyring, because stores with different files share the key.
        with held_in_thread(lock, seconds=_LOCK_SECONDS, what=f"the keyring {_name(self._keyring)}"):
            key = self._get()
            if key is None:
                key = new_key()
                self._set(self._service, _ENTRY, key)
                # Tokens must not be encrypted with a key that nobody finds again.
                if self._get() != key:
                    raise StoreError(
                        f"the keyring {_name(self._keyring)} did not keep the key for tokens; "
                        "use another keyring, or keep tokens in a FileTokenStore"
                    )
            return key

    def _cipher_with(self, key: str) -> TokenCipher:
        try:
            stored = TokenCipher(key)
        except StoreError:
            raise StoreError(
                f"the entry {_ENTRY!r} of {self._service!r} in the keyring {_name(self._keyring)} is not a key; "
                f"restore it, or delete it, move {str(self._path)!r} away and sign in again"
            ) from None
        if self._given is None:
            return stored
        return TokenCipher(self._given, key)

    def _no_key(self) -> str:
        return (
            f"is encrypted, and the keyring {_name(self._keyring)} has no entry {_ENTRY!r} of {self._service!r}; "
            f"restore it, set {KEY_VARIABLE} if that was its key, or move the file away and sign in again"
        )


def _opens(path: Path, cipher: TokenCipher | None) -> bool:
    """Return whether a cipher can read a file, which any cipher can before the file exists."""
    if cipher is None:
        return False
    try:
        TokenFile(path, cipher).read()
    except StoreError:
        return False
    return True


def _priority(backend: KeyringBackend) -> float:
    """Return the priority of a backend, -1 if it cannot be used."""
    try:
        return float(cast("Any", type(backend)).priority)
    except Exception:  # boundary: a backend says by any exception that it cannot be used
        return -1


def _name(backend: KeyringBackend) -> str:
    return f"{type(backend).__module__}.{type(backend).__name__}"
