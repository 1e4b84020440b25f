"""The store of runs and conversations: a file, or a backend that many processes share. Knows no run."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from toolweave.cli._exit_codes import CommandError, ExitCode
from toolweave.errors import StoreError

if TYPE_CHECKING:
    from toolweave.jobs import Backend
    from toolweave.state import Store

BACKEND = "TOOLWEAVE_BACKEND"
"""The variable with the URL of the backend."""
NO_WORKERS = "a store without a queue: it wakes no workers"
_MEMORY = "memory:"
_SQLITE = "sqlite:"


def is_url(place: str) -> bool:
    """Whether a store's location is the URL of a shared backend, not a file."""
    return "://" in place and not place.startswith(_SQLITE)


def backend_named(option: str | None) -> str | None:
    """Return the URL of the backend with workers, from the option or `TOOLWEAVE_BACKEND`; None without one.

    Raises:
        CommandError: The option is not a URL, or names a file or the memory of this process.
    """
    if option is None:
        found = os.environ.get(BACKEND, "").strip()
        if found.startswith((_MEMORY, _SQLITE)) or not found:
            return None
        return found
    if option.startswith(_MEMORY):
        raise CommandError(
            "--backend memory:// is the memory of one process: no other process can give work to it, or do its work",
            hint="--backend redis://HOST:6379/0, and the same for workers and for those who submit",
        )
    if option.startswith(_SQLITE):
        raise CommandError(
            f"--backend: a file is {NO_WORKERS}",
            hint="--store FILE keeps runs of this machine there, in processes of their own",
        )
    if not is_url(option):
        raise CommandError("--backend: expected a URL", hint="--backend redis://HOST:6379/0")
    return option


@asynccontextmanager
async def opened_store(place: str | None, *, existing: bool = False) -> AsyncGenerator[Store]:
    """Open the store of a file or a URL; by default that of `TOOLWEAVE_BACKEND`, else the file in the data folder.

    Args:
        place: The file or the URL, or None.
        existing: Whether the command only uses what is in the store. It then creates no file: a named file that does
            not exist is an error, and without the default file nothing is kept yet.

    Raises:
        CommandError: The URL is invalid, its server cannot be reached, or the file does not exist.
        StoreError: The file cannot be opened.
    """
    from toolweave.state import SqliteStore, open_store  # --help imports this module

    place = place or _place_of_environment()
    with _refused(ExitCode.USAGE):
        store = SqliteStore() if place is None else open_store(place)
    if existing:
        store = _with_contents(store, place)
    async with AsyncExitStack() as stack:
        if isinstance(store, SqliteStore):
            yield await stack.enter_async_context(store)
            return
        with _refused(ExitCode.UNREACHABLE):
            await stack.enter_async_context(store)
        yield store


def _with_contents(store: Store, place: str | None) -> Store:
    """Return a store to read; an empty one in memory if the default file does not exist yet.

    Raises:
        CommandError: The named file does not exist or is a folder, or the store is the memory of this process.
    """
    from toolweave.state import MemoryStore, SqliteStore  # as above

    if isinstance(store, MemoryStore):
        raise CommandError(
            f"the store {place!r} is the memory of this process, which has nothing in it yet",
            hint="--store FILE or --store redis://HOST:6379/0, as it was given to the command that began the runs",
        )
    if not isinstance(store, SqliteStore):
        return store
    if store.path.is_dir():
        raise CommandError(f"{str(store.path)!r} is a folder, not a store", hint="give --store the file in it")
    if store.path.exists():
        return store
    if place is None:
        return MemoryStore()
    raise CommandError(
        f"there is no store at {str(store.path)!r}",
        hint="check the path of --store; `toolweave chat` and `toolweave runs spawn` create a store",
    )


def _place_of_environment() -> str | None:
    found = os.environ.get(BACKEND, "").strip()
    # The memory of another process has nothing that this command could read.
    if found.startswith(_MEMORY) or not found:
        return None
    return found


@asynccontextmanager
async def opened_backend(url: str, *, wait_seconds: float = 0) -> AsyncGenerator[Backend]:
    """Open a backend, which may be away for so many seconds at first.

    Raises:
        CommandError: The URL is invalid, its server cannot be reached, or a package for it is not installed.
    """
    from toolweave.jobs import Backend  # as above
    from toolweave.state.startup import opened_when_reached

    with _refused(ExitCode.USAGE):
        backend = Backend(url)
    async with AsyncExitStack() as stack:
        with _refused(ExitCode.UNREACHABLE):
            await stack.enter_async_context(opened_when_reached(backend, seconds=wait_seconds))
        yield backend


@contextmanager
def _refused(code: ExitCode) -> Generator[None]:
    """Convert errors of a store or a backend to a `CommandError` with an exit code."""
    try:
        yield
    except (StoreError, ValueError) as error:
        raise CommandError(str(error), code=code) from None
