"""Idempotency keys of runs and of calls: the same for every repetition. Pure."""

from __future__ import annotations

import uuid

_NAMES = uuid.UUID("0c6f8f0e-52b7-5d0e-9f5a-3c2d8b1e7a64")


def run_id_of(agent: str, key: str) -> str:
    """Return the run id for an idempotency key of an agent."""
    return _named("run", agent, key)


def call_key(run_id: str, step: int, call_id: str) -> str:
    """Return the idempotency key of a call of a run, the same for a repetition after a crash: 32 characters."""
    return _named("call", run_id, str(step), call_id)


def part_key(key: str, number: int) -> str:
    """Return the idempotency key of one of the calls that a batch call makes."""
    return _named("part", key, str(number))


def _named(*parts: str) -> str:
    # lengths, so that no two lists of parts are one text
    return uuid.uuid5(_NAMES, "".join(f"{len(part)}:{part}" for part in parts)).hex
