"""A store and a queue at one place: what a URL says, what is shown of it, and what it costs."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest

from toolweave.errors import StoreError
from toolweave.jobs import Backend, WorkBackend
from toolweave.state import MemoryStore


@pytest.mark.parametrize(
    ("url", "name", "where"),
    [
        ("memory://", "toolweave", "memory://"),
        ("memory://?name=acme", "acme", "memory://"),
        ("redis://h", "toolweave", "redis://h:6379/0"),
        ("redis://u:secret@h:7/3?name=acme&socket_timeout=5", "acme", "redis://h:7/3"),
        ("valkey://:secret@h/1", "toolweave", "redis://h:6379/1"),
        ("rediss://u:secret@h", "toolweave", "rediss://h:6379/0"),
        ("unix:///run/redis.sock?db=2&password=secret", "toolweave", "unix:///run/redis.sock?db=2"),
    ],
)
def test_a_url_says_where_and_under_which_name_and_shows_no_secret(url: str, name: str, where: str) -> None:
    backend = Backend(url, store=MemoryStore())
    assert (backend.name, backend.where) == (name, where)
    assert "secret" not in repr(backend) + repr(backend.queue)
    assert isinstance(backend, WorkBackend)


def test_a_name_that_is_given_wins_over_that_in_the_url() -> None:
    assert Backend("memory://?name=one", name="two").name == "two"


@pytest.mark.parametrize("url", ["", "redis", "http://user:secret@h", "localhost:6379", "amqp://secret@h"])
def test_a_url_of_another_kind_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(StoreError, match="redis://") as told:
        Backend(url)
    assert "secret" not in str(told.value)


def test_the_environment_names_a_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOOLWEAVE_BACKEND", raising=False)
    assert Backend.from_environment().where == "memory://"
    monkeypatch.setenv("TOOLWEAVE_BACKEND", "redis://h/4?name=acme")
    assert repr(Backend.from_environment()) == "<Backend 'acme' at redis://h:6379/4>"


def test_a_store_beside_the_queue_is_the_store() -> None:
    store = MemoryStore()
    assert Backend("memory://", store=store).store is store


async def test_a_backend_is_entered_by_count() -> None:
    backend = Backend("memory://")
    async with backend as one, backend as other:
        assert one is other
    async with backend:
        await backend.store.put("a", "b", 1)


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_the_room_loads_neither_docket_nor_redis() -> None:
    loaded = "[name for name in ('docket', 'redis', 'opentelemetry', 'prometheus_client') if name in sys.modules]"
    runs = "toolweave.agent._stored.durable, toolweave.agent._workers.submit, toolweave.agent._workers.worker"
    assert python(f"import sys, toolweave.jobs, {runs}; print({loaded})") == "[]"


def test_without_the_extra_a_backend_says_what_to_install() -> None:
    code = """
import sys
from toolweave.errors import StoreError
from toolweave.jobs import Backend
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in ("docket", "redis"):
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Missing())
try:
    Backend("memory://")
except StoreError as exc:
    print(exc)
"""
    assert python(code) == "a queue of work needs docket: pip install 'toolweave[distributed]'"


@pytest.mark.slow
def test_docket_tells_nothing_below_a_loss_unless_it_is_asked_to() -> None:
    code = """
import logging
from toolweave.jobs import Backend
import toolweave.jobs._docket_worker
{before}
toolweave.jobs._docket_worker.open_docket("memory://", "x")
print(logging.getLogger("docket.worker").getEffectiveLevel())
"""
    assert python(code.format(before="")) == "50"
    assert python(code.format(before="logging.getLogger('docket').setLevel(logging.INFO)")) == "20"


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"url": None}, TypeError, "Backend.url"),
        ({"name": 5}, TypeError, "Backend.name"),
        ({"redelivery_seconds": 0}, ValueError, "Backend.redelivery_seconds"),
        ({"redelivery_seconds": -1}, ValueError, "Backend.redelivery_seconds"),
        ({"redelivery_seconds": "15"}, TypeError, "Backend.redelivery_seconds"),
    ],
    ids=str,
)
def test_an_option_of_another_kind_is_refused_by_its_name(
    options: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=re.escape(said)):
        Backend(**options)
