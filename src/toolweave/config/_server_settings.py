"""The types that the constructor of `ServerConfig` accepts, for type checkers.

A config stores the normal form of each setting: `timeout=5` becomes a `Timeouts`. So the types of its attributes are
narrower than those of the constructor's parameters, which stand here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import PurePath
from typing import Any, Literal, TypeAlias, TypedDict

from toolweave.config._auth import AuthSetting
from toolweave.config._confinement import ResourceLimits, Sandbox
from toolweave.config._secret import Secret
from toolweave.config._shaping import ShapeRule
from toolweave.config._source import Source
from toolweave.config._timeouts import Timeouts

ConfirmMode: TypeAlias = Literal["always", "writes", "destructive", "never"]
"""The calls that a person has to approve."""


class ServerSettings(TypedDict, total=False):
    """The parameters of `ServerConfig`, which explains each of them."""

    name: str
    transport: str
    command: str | PurePath
    args: Sequence[str | PurePath]
    env: Mapping[str, str | Secret] | None
    cwd: str | PurePath | None
    url: str
    headers: Mapping[str, str | Secret] | Callable[[], Any] | None
    forward_headers: Sequence[str] | AbstractSet[str]
    claim_headers: Mapping[str, str] | None
    auth: AuthSetting
    disabled: bool
    timeout: Timeouts | Mapping[str, float | None] | float | None
    include: Sequence[str] | AbstractSet[str]
    exclude: Sequence[str] | AbstractSet[str]
    confirm: ConfirmMode | Mapping[str, ConfirmMode] | None
    tool_prefix: str | None
    restart: Literal["on_failure", "always", "never"]
    legacy_sse: Literal["auto", "never", "only"]
    protocol: str
    validate_input: bool
    repair_arguments: bool
    repair_messages: bool
    validate_output: Literal["warn", "error", "off"]
    max_concurrency: int | None
    max_connections: int | None
    max_message_bytes: int | None
    max_list_bytes: int | None
    max_questions: int | None
    max_question_bytes: int | None
    on_conflict: Literal["rename", "skip", "error"]
    shape: Sequence[ShapeRule | Mapping[str, Any]]
    scan: bool
    pins: Literal["off", "warn", "block"] | None
    lockfile: str | PurePath | None
    limits: ResourceLimits | Mapping[str, Any] | None
    sandbox: Sandbox | Mapping[str, Any] | str | None
    options: Mapping[str, Any]
    server: Any  # whatever an in-process server is
    source: Source | None
    sensitive: Sequence[str | Secret]
