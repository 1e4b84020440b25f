"""The examples of docs/scale.md for replicas, and that of a team: configs with known options."""

from __future__ import annotations

import pytest

from tests.docs.pages import SNIPPETS
from toolweave.gateway import load_gateway_config


def test_its_config_is_one_with_the_redis_of_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://:secret@redis:6379/0")
    config = load_gateway_config(SNIPPETS / "scale_gateway.json")

    assert config.redis is not None
    assert config.redis.reveal() == "redis://:secret@redis:6379/0"
    assert "secret@" not in repr(config)


def test_the_config_of_the_team_gives_each_person_a_key_and_its_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADA_KEY", "a key of more than sixteen characters")
    monkeypatch.setenv("BUILD_KEY", "another key of more than sixteen characters")
    config = load_gateway_config(SNIPPETS / "team_gateway.json")

    assert config.auth is not None
    assert len(config.middleware) == 3
    assert "sixteen" not in repr(config)
