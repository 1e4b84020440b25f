"""What is kept about a user is erased from every place, which is searched for in the raw stores; others' stays."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.jobs.places import working
from tests.middleware.company import joined, token_of
from tests.oauth.token_stores import a_key, a_record, new_key
from tests.raw_store import Raw
from toolweave import Agent, Backend, CallContext, ScriptedModel, tool
from toolweave.compose import UserData
from toolweave.errors import ConfigError, RunError, StoreError
from toolweave.middleware import AuditLog, RateLimit, StoreLimits
from toolweave.oauth import FileTokenStore, SharedTokenStore
from toolweave.serve import McpServer, create_mcp_server
from toolweave.state import MemoryStore, Store

ADA, BOB = "ada-lovelace", "bob"
MODERN = "2026-07-28"


def principal(subject: str, issuer: str = "https://issuer.example") -> str:
    return json.dumps(["app", issuer, subject], separators=(",", ":"))


@tool
async def keep(text: str, ctx: CallContext) -> str:
    """Keep something in the session."""
    await ctx.session.set("text", text)
    return "kept"


@tool
async def work(text: str) -> str:
    """Work."""
    return f"did {text}"


def shop(store: Store, audit: Path) -> McpServer:
    limit = RateLimit(calls=1000, seconds=60, store=StoreLimits(store))
    middleware = [AuditLog(path=str(audit), arguments="values"), limit]
    return create_mcp_server("shop", tools=[keep, work], store=store, tasks={"work": "required"}, middleware=middleware)


async def talk(agent: Agent, backend: Backend, session: str, text: str) -> None:
    run = await agent.submit(text, session=session)
    async with working(backend, agent):
        assert (await run.result(timeout=60)).status == "completed"


async def fill(backend: Backend, audit: Path, tokens: FileTokenStore) -> None:
    """Keep something of two users in every place."""
    store = backend.store
    agent = Agent(ScriptedModel(["Hello."] * 6), name="a", backend=backend)
    server = shop(store, audit)
    shared = SharedTokenStore(store, key=new_key())
    for user in (ADA, BOB):
        whole = principal(user)
        for session in (user, f"{user}/home", f"{whole}:x"):
            await talk(agent, backend, session, f"I am {user}")
        async with joined(server, token_of(user), MODERN) as connection:
            assert (await connection.call_tool("keep", {"text": f"{user} likes tea"})).text == "kept"
            assert (await connection.call_tool("work", {"text": user})).text == f"did {user}"
        for one in (tokens, shared):
            await one.save(a_record(a_key(principal=whole), token=f"{user}-token"))
        grant: dict[str, Any] = {"client_id": "c", "subject": user, "scopes": [], "sealed": "", "ends_at": 1e10}
        await store.put("toolweave.oauth.grants", hashlib.sha256(user.encode()).hexdigest(), grant)
        await store.put("toolweave.oauth.refresh", f"of {len(user)}", {"grant": user, "client_id": "c", "scopes": []})


@pytest.mark.parametrize("name", [ADA, principal(ADA)])
async def test_an_erased_user_is_in_no_store_and_other_users_are_as_before(
    raw_place: tuple[Backend, Raw], tmp_path: Path, name: str
) -> None:
    backend, raw = raw_place
    audit = tmp_path / "audit.jsonl"
    tokens = FileTokenStore(tmp_path / "tokens.json")
    async with backend:
        await fill(backend, audit, tokens)
        data = UserData(backend.store, name, token_stores=[tokens], audit_logs=[audit])
        found = await data.find()
        assert (found.sessions, found.runs, found.sign_ins) == ((3, 3, 1) if name == ADA else (1, 1, 1))
        lines = audit.read_text().splitlines()

        erased = await data.erase()
        assert (erased.sessions, erased.documents, erased.audit_lines) == (
            found.sessions,
            found.documents,
            found.audit_lines,
        )
        left = audit.read_text().splitlines()
        assert len(left) == len(lines)
        assert [one for one in left if BOB in one] == [one for one in lines if BOB in one]
        assert sum(json.loads(one).get("erased", False) for one in left) == found.audit_lines > 0
        assert ADA not in audit.read_text()
        assert [one.key.principal for one in await tokens.records()] == [principal(BOB)]
        other = await UserData(backend.store, BOB, token_stores=[tokens], audit_logs=[audit]).find()
        assert (other.sessions, other.sign_ins, other.documents) == (3, 1, found.documents)
        if name == ADA:
            assert erased.mentions == {}
            assert ADA.encode() not in await raw()
        assert (await data.find()).total == 0


async def test_documents_that_still_name_an_erased_user_are_counted() -> None:
    async with MemoryStore() as store:
        await store.put("notes", "1", {"text": "call ann, not annual"})
        await store.put("notes", "2", {"text": "annual"})
        assert (await UserData(store, "ann").erase()).mentions == {"notes": 1}


async def test_a_run_that_has_not_ended_keeps_all_of_its_user_in_place(tmp_path: Path) -> None:
    backend = Backend("memory://", store=MemoryStore())
    async with backend:
        await fill(backend, tmp_path / "audit.jsonl", FileTokenStore(tmp_path / "tokens.json"))
        await Agent(ScriptedModel(["Hello."]), name="a", backend=backend).submit("Hi", session=f"{ADA}/later")
        data = UserData(backend.store, ADA)
        before = await data.find()
        with pytest.raises(RunError, match="has not ended: cancel it first"):
            await data.erase()
        assert await data.find() == before


async def test_one_subject_at_two_issuers_is_not_one_user(tmp_path: Path) -> None:
    tokens = FileTokenStore(tmp_path / "tokens.json")
    for issuer in ("https://a.example", "https://b.example"):
        await tokens.save(a_record(a_key(issuer=issuer, principal=principal(ADA, issuer))))
    async with MemoryStore() as store:
        with pytest.raises(ConfigError, match=r"of several issuers: give one of \[\"app\",\"https://a.example\""):
            await UserData(store, ADA, token_stores=[tokens]).erase()
        one = UserData(store, principal(ADA, "https://a.example"), token_stores=[tokens])
        assert (await one.erase()).sign_ins == 1
    assert [one.key.issuer for one in await tokens.records()] == ["https://b.example"]


async def test_nobody_and_a_missing_log_are_errors(tmp_path: Path) -> None:
    async with MemoryStore() as store:
        with pytest.raises(ConfigError, match="the principal is empty"):
            UserData(store, "")
        with pytest.raises(StoreError, match="No such file"):
            await UserData(store, ADA, audit_logs=[tmp_path / "none"]).erase()


async def test_lines_that_are_written_during_an_erasure_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"

    def line(user: str, number: int) -> bytes:
        who: dict[str, Any] = {"client": "app", "issuer": "https://issuer.example", "subject": user}
        return json.dumps({"time": "2026-01-01T00:00:00.000Z", "principal": who, "n": number}).encode() + b"\n"

    path.write_bytes(b"".join(line(ADA if number % 2 else BOB, number) for number in range(2000)))

    async def append() -> None:
        for number in range(2000, 3000):
            with path.open("ab") as file:
                file.write(line(BOB, number))
            await anyio.sleep(0)

    async with MemoryStore() as store, anyio.create_task_group() as tasks:
        tasks.start_soon(append)
        assert (await UserData(store, ADA, audit_logs=[path]).erase()).audit_lines == 1000
    found = [json.loads(one) for one in path.read_text().splitlines()]
    assert [one["n"] for one in found if "n" in one] == [*range(0, 2000, 2), *range(2000, 3000)]


async def test_collections_that_a_subject_alone_does_not_reach_are_named() -> None:
    async with MemoryStore() as store:
        shared = SharedTokenStore(store, key=new_key())
        await shared.save(a_record(a_key(principal=principal(ADA))))
        by_subject = await UserData(store, ADA).erase()
        assert (by_subject.total, by_subject.unsearched) == (0, ["oauth-tokens"])
        whole = await UserData(store, principal(ADA)).erase()
        assert (whole.documents, whole.unsearched) == (1, [])
        assert (await UserData(store, ADA).find()).unsearched == []


async def test_the_user_of_an_api_key_is_found_by_their_name() -> None:
    async with MemoryStore() as store:
        shared = SharedTokenStore(store, key=new_key())
        await shared.save(a_record(a_key(principal=json.dumps([ADA, None, None], separators=(",", ":")))))
        assert (await UserData(store, ADA).erase()).documents == 1
