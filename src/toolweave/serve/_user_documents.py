"""The documents in a store that servers and authorization servers keep about one user."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence

from toolweave._json_types import object_or_empty, text_or_empty
from toolweave.jobs._kind import owner_prefix
from toolweave.serve._oauth_server.grants import CODES, GRANTS, REFRESH
from toolweave.serve._oauth_server.keys import digest
from toolweave.serve._sessions import SESSIONS, sessions_prefix
from toolweave.serve._tasks.store import CALLS, PERMITS, TASK_NOTES, TASKS
from toolweave.serve.request import principal_name
from toolweave.state import Delete, Document, Store, iter_documents
from toolweave.state.deletions import deletions


async def task_owners(store: Store) -> AsyncGenerator[str]:
    """Yield the principals that tasks in a store belong to."""
    for collection, member in ((TASKS, "owner"), (CALLS, "principal")):
        async for found in iter_documents(store, collection):
            owner = _text(found, member)
            if owner:
                yield owner


async def user_documents(
    store: Store, collections: Sequence[str], is_user: Callable[[str], bool], principals: Sequence[str]
) -> list[Delete]:
    """Return the changes that delete a user's tasks, sessions at servers, and grants to clients.

    Args:
        store: The store.
        collections: The names of its collections.
        is_user: Whether a principal is the user.
        principals: The known principals of the user: the names of sessions cannot be read back.

    Raises:
        StoreError: The store cannot be read.
    """

    def is_held(permit: Document) -> bool:
        return is_user(text_or_empty(permit.value))

    changes = await _tasks(store, is_user) + await _grants(store, set(map(principal_name, principals)))
    for collection in collections:
        if collection.startswith(PERMITS):
            changes += await deletions(store, collection, is_wanted=is_held)
        elif collection.startswith(SESSIONS):
            for principal in principals:
                changes += await deletions(store, collection, sessions_prefix(principal))
    return changes


async def _tasks(store: Store, is_user: Callable[[str], bool]) -> list[Delete]:
    changes = await deletions(store, CALLS, is_wanted=lambda call: is_user(_text(call, "principal")))
    async for found in iter_documents(store, TASKS):
        if is_user(_text(found, "owner")):
            changes += [
                Delete(collection=TASKS, key=found.key),
                Delete(collection=TASK_NOTES.submitted, key=owner_prefix(_text(found, "server")) + found.key),
                Delete(collection=TASK_NOTES.deaths, key=found.key),
                Delete(collection=TASK_NOTES.cancels, key=found.key),
            ]
    return changes


async def _grants(store: Store, subjects: set[str]) -> list[Delete]:
    """Return the changes that delete the grants of these people, with the codes and refresh tokens of each."""
    grants: set[str] = set()

    def is_theirs(grant: Document) -> bool:
        if _text(grant, "subject") not in subjects:
            return False
        grants.add(grant.key)
        return True

    changes = await deletions(store, GRANTS, is_wanted=is_theirs)
    for collection in (CODES, REFRESH):
        changes += await deletions(store, collection, is_wanted=lambda token: digest(_text(token, "grant")) in grants)
    return changes


def _text(found: Document, member: str) -> str:
    return text_or_empty(object_or_empty(found.value).get(member))
