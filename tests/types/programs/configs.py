"""What the constructors of configs accept, and the types of what they store."""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

from pydantic import BaseModel

from toolweave import ServerConfig
from toolweave.config import Auth, OAuth, Secret, ShapeRule, Timeouts

token = ServerConfig(url="https://tools.example/mcp", auth="token", timeout=5)
assert_type(token.timeout, Timeouts)
assert_type(token.auth, Auth | None)
assert_type(token.replace(timeout={"call": 2.5}), ServerConfig)

ServerConfig(url="https://tools.example/mcp", auth=OAuth(client_id="app", client_secret="secret"))
ServerConfig(url="https://tools.example/mcp", auth={"type": "bearer", "token": "token"})
ServerConfig(url="https://tools.example/mcp", auth=lambda: "token", headers={"x-team": Secret("blue")})
ServerConfig(url="https://tools.example/mcp", auth=Auth(type="api_key", token="token"), confirm="destructive")
ServerConfig(
    command=Path("server"), args=["--folder", Path("data")], env={"LEVEL": "info"}, cwd=Path("project"), timeout=2.5
)
ServerConfig(
    command="server",
    include=["read"],
    shape=[ShapeRule(tools="read", name="get"), {"tools": "write", "hide": True}],
    limits={"memory_bytes": 2**30},
    sandbox="bwrap",
)


class Settings(BaseModel):
    """Settings of a program."""

    servers: dict[str, ServerConfig] = {}
    first: ServerConfig | None = None


settings = Settings(servers={"files": ServerConfig(command="server")})
assert_type(settings.servers["files"], ServerConfig)
assert_type(settings.first, ServerConfig | None)
