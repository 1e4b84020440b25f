"""The data of one user in a store, token stores and audit logs: counted, or erased for ever.

Each room knows which of its documents are about a user; this module asks them all. Runs come first, because one that
has not ended refuses its deletion; every step can be repeated after one that failed.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio

from toolweave._option_checks import check_kind, check_kinds, list_of
from toolweave.agent._stored.deletion import delete_sessions, sessions_with_runs
from toolweave.errors import ConfigError, StoreError
from toolweave.middleware._audit_file import audit_principals, erase_lines
from toolweave.middleware._store_limits import COLLECTION as LIMITS
from toolweave.middleware._store_limits import limit_principal
from toolweave.oauth import TokenRecord, TokenStore
from toolweave.oauth._stores.shared_store import TOKENS, token_documents
from toolweave.serve._sessions import SESSIONS
from toolweave.serve._user_documents import task_owners, user_documents
from toolweave.serve.request import issuer_of, principal_name, principal_of
from toolweave.state import Delete, Document, Store, iter_documents
from toolweave.state.checks import STORE
from toolweave.state.deletions import deletions, write_deletions
from toolweave.state.store import CompactableStore, ListableStore, iter_containing

T = TypeVar("T")


_KINDS = {
    "token_stores": list_of(TokenStore, "a list of token stores"),
    "audit_logs": list_of((str, Path), "a list of paths"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class UserDataCounts:
    """Counts of the data of a user, as found or as erased.

    Attributes:
        sessions: Number of conversations.
        runs: Number of runs.
        documents: Number of other documents: tasks, sessions at servers, grants, limits, tokens in the store.
        sign_ins: Number of sign-ins in token stores.
        audit_lines: Number of lines of audit logs.
        mentions: Number of documents that name the user and are not theirs, by collection; these stay.
        unsearched: Collections that may have more: their documents are found by a whole principal alone, and only the
            subject of the user is known.
    """

    sessions: int = 0
    runs: int = 0
    documents: int = 0
    sign_ins: int = 0
    audit_lines: int = 0
    mentions: Mapping[str, int] = field(default_factory=dict[str, int])
    unsearched: Sequence[str] = ()

    @property
    def total(self) -> int:
        """The number of all that is the user's."""
        return self.sessions + self.runs + self.documents + self.sign_ins + self.audit_lines


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    sessions: Mapping[tuple[str, str], int]
    documents: Sequence[Delete]
    sign_ins: Sequence[tuple[TokenStore, TokenRecord]]
    audit_lines: int
    unsearched: Sequence[str]


class UserData:
    """The data of one user in a store, token stores and audit logs.

    A conversation is the user's if its session is named `PRINCIPAL`, or begins with `PRINCIPAL/` or `PRINCIPAL:`. A
    run is the user's if it is in such a session. Everything else is the user's by the principal of its token.

    Args:
        store: The store of runs, tasks and sessions.
        principal: The user: the whole principal as `ctx.principal` has it, or the subject alone.
        token_stores: Stores of sign-ins beside the store; the tokens of a `SharedTokenStore` in the store are found
            without it.
        audit_logs: Files of `AuditLog`, also rotated ones. Without them no audit log is changed: whether a log has to
            be kept is the owner's decision.

    Raises:
        ConfigError: The principal is empty.
        TypeError: An option has another type.
    """

    def __init__(
        self,
        store: Store,
        principal: str,
        *,
        token_stores: Collection[TokenStore] = (),
        audit_logs: Collection[str | Path] = (),
    ) -> None:
        check_kind("UserData.store", store, STORE)
        check_kinds({"token_stores": token_stores, "audit_logs": audit_logs}, _KINDS, owner="UserData")
        if not principal:
            raise ConfigError("the principal is empty: name the user")
        self._store = store
        self._principal = principal
        self._token_stores = tuple(token_stores)
        self._audit_logs = tuple(map(Path, audit_logs))

    def __repr__(self) -> str:
        return f"<UserData of a principal in {self._store!r}>"

    async def find(self) -> UserDataCounts:
        """Count the data of the user.

        Raises:
            ConfigError: Users of several issuers have this subject.
            StoreError: A store or a log cannot be read.
        """
        found = await self._collect()
        return UserDataCounts(
            sessions=len(found.sessions),
            runs=sum(found.sessions.values()),
            documents=len(found.documents),
            sign_ins=len(found.sign_ins),
            audit_lines=found.audit_lines,
            unsearched=found.unsearched,
        )

    async def erase(self) -> UserDataCounts:
        """Erase the data of the user for ever and compact the store; return the counts of erased data.

        A process that is running may still have tokens in its memory: restart it.

        Raises:
            RunError: One of the user's runs has not ended: cancel it first.
            ConfigError: Users of several issuers have this subject.
            StoreError: A store or a log cannot be read or written.
        """
        found = await self._collect()
        runs = await delete_sessions(self._store, found.sessions.keys())
        await write_deletions(self._store, found.documents)
        for tokens, record in found.sign_ins:
            await tokens.delete(record.key)
        audit_lines = 0
        for path in self._audit_logs:
            audit_lines += await _in_file(path, partial(erase_lines, is_user=self._is_user))
        if isinstance(self._store, CompactableStore):
            await self._store.compact()
        return UserDataCounts(
            sessions=len(found.sessions),
            runs=runs,
            documents=len(found.documents),
            sign_ins=len(found.sign_ins),
            audit_lines=audit_lines,
            mentions=await self._mentions(),
            unsearched=found.unsearched,
        )

    async def _collect(self) -> _Found:
        """Find the data of the user.

        First all principals that the sources know are collected: with a subject alone, they show which issuers have
        such a user.

        Raises:
            ConfigError: Users of several issuers have this subject.
            StoreError: A store or a log cannot be read.
        """
        collections = await self._collections()
        sign_ins: list[tuple[TokenStore, TokenRecord]] = []
        known: set[str] = set()
        for tokens in self._token_stores:
            for record in await tokens.records():
                known.add(record.key.principal)
                if self._is_user(record.key.principal):
                    sign_ins.append((tokens, record))
        lines_by_principal: Counter[str] = Counter()
        for path in self._audit_logs:
            lines_by_principal.update(await _in_file(path, _principals))
        async for owner in task_owners(self._store):
            known.add(owner)
        async for limit in iter_documents(self._store, LIMITS):
            known.add(limit_principal(limit))
        principals = self._of_user(known.union(lines_by_principal))
        documents = await user_documents(self._store, collections, self._is_user, principals)
        documents += await deletions(self._store, LIMITS, is_wanted=self._is_limit_of_user)
        documents += await token_documents(self._store, principals)
        unsearched: list[str] = []
        if not self._is_whole(principals):
            unsearched.extend(filter(_is_by_principal, collections))
        return _Found(
            sessions=await sessions_with_runs(self._store, principals),
            documents=documents,
            sign_ins=sign_ins,
            audit_lines=sum(lines_by_principal[principal] for principal in principals),
            unsearched=unsearched,
        )

    def _of_user(self, known: Iterable[str]) -> Sequence[str]:
        """Return the known principals that are the user, and the given one."""
        found = set(filter(self._is_user, known))
        # One subject at two issuers is two people.
        issuers = set(map(issuer_of, found)) - {None}
        if self._principal not in found and len(issuers) > 1:
            names = ", ".join(sorted(found))
            raise ConfigError(f"{self._principal!r} is a user of several issuers: give one of {names}")
        if principal_name(self._principal) == self._principal:
            # The user of an API key has a principal without an issuer.
            found.add(principal_of(self._principal, None, None))
        return sorted(found | {self._principal})

    def _is_limit_of_user(self, limit: Document) -> bool:
        return self._is_user(limit_principal(limit))

    def _is_user(self, principal: str) -> bool:
        return bool(principal) and self._principal in (principal, principal_name(principal))

    def _is_whole(self, principals: Sequence[str]) -> bool:
        """Whether a whole principal of the user is known, with the issuer of their tokens."""
        return principal_name(self._principal) != self._principal or any(map(issuer_of, principals))

    async def _collections(self) -> Sequence[str]:
        if not isinstance(self._store, ListableStore):
            raise StoreError(f"{self._store!r} has no method 'collections', so the data of a user cannot be found")
        return await self._store.collections()

    async def _mentions(self) -> Mapping[str, int]:
        """Count the documents that still name the user."""
        # As JSON text, in which the quotes of a whole principal are escaped.
        escaped = json.dumps(self._principal)[1:-1]
        named = re.compile(rf"(?<!\w)(?:{re.escape(self._principal)}|{re.escape(escaped)})(?!\w)")
        counts: Counter[str] = Counter()
        for collection in await self._collections():
            # The store finds the texts; whether they stand there as words is decided here.
            async for found in iter_containing(self._store, collection, sorted({self._principal, escaped})):
                if named.search(found.key) or named.search(json.dumps(found.value)):
                    counts[collection] += 1
        return dict(counts)


def _is_by_principal(collection: str) -> bool:
    """Whether the documents of a collection are found by a whole principal alone, whose digest names them."""
    return collection == TOKENS or collection.startswith(SESSIONS)


def _principals(path: Path) -> list[str]:
    return list(audit_principals(path))


async def _in_file(path: Path, work: Callable[[Path], T]) -> T:
    """Do work with a file in a thread.

    Raises:
        StoreError: The file cannot be read or written.
    """
    try:
        return await anyio.to_thread.run_sync(work, path)
    except OSError as exc:
        raise StoreError(f"the audit log {str(path)!r} cannot be used: {exc.strerror or exc}") from exc
