"""The skills of servers as two tools for a model: one that loads a skill, one that reads a file of a loaded one.

A skill is identified by its server and its path there, so that none can replace another's.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, TypeAlias

import anyio

from toolweave.connect import LoadedSkill, McpConnection
from toolweave.errors import ErrorKind, ServerError, SkillError, ToolError, printable, shortened
from toolweave.hub._hub import Hub
from toolweave.protocol.content import EmbeddedResource
from toolweave.protocol.skills import Skill
from toolweave.tools import RoutingToolset, ToolRegistry, ToolsChanged, Toolset, ToolSnapshot, Unsubscribe, tool
from toolweave.tools.toolset import entered, leave

ApproveSkill: TypeAlias = Callable[[Skill], bool | Awaitable[bool]]
"""Returns whether a model may load a skill."""

_MAX_SHOWN = 200
_MAX_DESCRIPTION = 300
"""Skills that the tool's description lists, and characters of each one's own description."""


def skill_tools(
    source: Hub | McpConnection | Iterable[McpConnection], *, approve: ApproveSkill | None = None
) -> SkillTools:
    """Return the skills of servers as a toolset, for an agent: `load_skill`, which lists them, and `read_skill_file`.

    Entering it opens the servers and lists their skills; no file is read before a model loads a skill. The text that a
    model gets names its server. A skill loads no other and grants nothing, regardless of its frontmatter.

    Args:
        source: A hub, a connection, or several.
        approve: Asked before a skill is loaded for the first time, and again when the skill has changed. None lets a
            model load every skill of these servers but those inside the folder of another, which need their own yes.
    """
    if isinstance(source, (Hub, McpConnection)):
        return SkillTools((source,), approve)
    return SkillTools(tuple(source), approve)


class SkillTools(RoutingToolset):
    """The skills of servers as a toolset, as made by `skill_tools`."""

    def __init__(self, sources: tuple[Hub | McpConnection, ...], approve: ApproveSkill | None) -> None:
        self._sources: tuple[Hub | McpConnection, ...] = sources
        self._approve = approve
        self._approved: set[str] = set()
        self._skills: Mapping[str, Skill] = {}
        self._loaded: dict[str, LoadedSkill] = {}
        self._registry = ToolRegistry()

    @property
    def skills(self) -> Mapping[str, Skill]:
        """The skills as they were listed last, by the names that models use."""
        return self._skills

    def snapshot(self) -> ToolSnapshot:
        """Return the two tools; none while there is no skill."""
        return self._registry.snapshot()

    def route(self, name: str) -> tuple[Toolset, str] | None:
        """Return where a call by this name ends; see `RoutingToolset.route`."""
        return self._registry.route(name)

    def subscribe(self, listener: Callable[[ToolsChanged], None]) -> Unsubscribe:
        """Call `listener` after every change; see `Toolset.subscribe`."""
        return self._registry.subscribe(listener)

    async def __aenter__(self) -> Self:
        async with entered(self._sources):
            await self.refresh()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return await leave(self._sources, exc_type, exc, traceback)

    async def refresh(self) -> None:
        """List the skills of all servers again; those of a server that does not answer are left out."""
        connections = self._connections()
        found: dict[str, tuple[Skill, ...]] = {}

        async def read(name: str, connection: McpConnection) -> None:
            try:
                found[name] = await connection.list_skills()
            except ServerError:
                found[name] = ()

        async with anyio.create_task_group() as tasks:
            for name, connection in connections.items():
                tasks.start_soon(read, name, connection)
        skills: dict[str, Skill] = {}
        for skill in (one for name in connections for one in found[name]):
            label = f"{skill.server}/{skill.root.partition('://')[2]}"
            skills[label if label not in skills else f"{skill.server}/{skill.uri}"] = skill
        self._skills = skills
        self._offer()

    def _connections(self) -> dict[str, McpConnection]:
        connections: dict[str, McpConnection] = {}
        for source in self._sources:
            connections |= source.clients if isinstance(source, Hub) else {source.name: source}
        return connections

    def _offer(self) -> None:
        """Offer the tools, with the list of the skills in the description of the first."""
        if not self._skills:
            for name in ("load_skill", "read_skill_file"):
                if name in self._registry:
                    self._registry.remove(name)
            return
        lines = [
            f"- {name}: {shortened(' '.join(printable(skill.description).split()), _MAX_DESCRIPTION)}"
            for name, skill in list(self._skills.items())[:_MAX_SHOWN]
        ]
        more = len(self._skills) - len(lines)
        listed = "\n".join([*lines, f"and {more} more"] if more else lines)
        about = f"Load the instructions of a skill before doing what it is for. Skills, by server:\n{listed}"
        reading = {"readOnlyHint": True, "openWorldHint": False}

        async def load_skill(skill: str) -> str:
            return await self._load(skill)

        async def read_skill_file(skill: str, path: str) -> EmbeddedResource:
            """Read a file of a skill that was loaded, by its path in the skill's folder."""
            return await self._read(skill, path)

        self._registry.add(tool(load_skill, description=about, annotations=reading), on_conflict="replace")
        self._registry.add(tool(read_skill_file, annotations=reading), on_conflict="replace")

    async def _load(self, name: str) -> str:
        skill = self._skills.get(name)
        if skill is None:
            known = ", ".join(list(self._skills)[:20])
            raise ToolError(f"there is no skill {name!r}; there are {known}", kind=ErrorKind.INVALID_INPUT)
        connection = self._connections().get(skill.server)
        if connection is None:
            raise ToolError(f"server {skill.server!r} of skill {name!r} is gone", kind=ErrorKind.NOT_SENT)
        await self._require_approval(name, skill)
        try:
            loaded = await connection.load_skill(skill)
        except SkillError as exc:
            loaded = await self._load_changed(name, skill, connection, exc)
        self._loaded[name] = loaded
        files = [path for path in loaded.files if skill.root + "/" + path != skill.uri]
        about = f"Skill {name!r}, written by server {skill.server!r} ({skill.uri})."
        if files:
            listed = f"\nFiles for read_skill_file: {', '.join(files)}"
        else:
            listed = ""
        return f"{about}{listed}\n\n{loaded.instructions}"

    async def _load_changed(
        self, name: str, skill: Skill, connection: McpConnection, refused: SkillError
    ) -> LoadedSkill:
        """Load a skill that has changed since it was listed, which needs another approval."""
        try:
            current = await connection.get_skill(skill.uri)
            if current.fingerprint == skill.fingerprint:
                # It does not match its own entry.
                raise refused
            await self._require_approval(name, current)
            loaded = await connection.load_skill(current)
        except SkillError as exc:
            raise ToolError(f"skill {name!r} cannot be used: {exc}", kind=ErrorKind.DENIED) from None
        self._skills = {**self._skills, name: current}
        return loaded

    async def _require_approval(self, name: str, skill: Skill) -> None:
        if skill.fingerprint in self._approved:
            return
        if self._approve is None:
            allowed: Any = not self._is_nested(skill)
        else:
            allowed = self._approve(skill)
            if inspect.isawaitable(allowed):
                allowed = await allowed
        # Anything else that counts as true, such as a text with a reason, is not a yes.
        if allowed is not True:
            raise ToolError(f"skill {name!r} was not approved", kind=ErrorKind.DENIED)
        self._approved.add(skill.fingerprint)

    def _is_nested(self, skill: Skill) -> bool:
        """Whether a skill is inside the folder of another of its server."""
        for other in self._skills.values():
            is_other = other.server == skill.server and other.uri != skill.uri
            if is_other and skill.uri.startswith(f"{other.root}/"):
                return True
        return False

    async def _read(self, name: str, path: str) -> EmbeddedResource:
        loaded = self._loaded.get(name)
        if loaded is None:
            raise ToolError(f"skill {name!r} is not loaded; load_skill does that", kind=ErrorKind.INVALID_INPUT)
        try:
            return await loaded.read(path)
        except SkillError as exc:
            raise ToolError(f"{exc}", kind=ErrorKind.DENIED) from None
