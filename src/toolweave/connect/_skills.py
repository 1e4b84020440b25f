"""Skills of a server (SEP-2640) for its client: listed, found and loaded; each file is read late, and verified.

A skill is identified by its server and its URI. Its text is that of the server: untrusted, and never a permission.
"""

from __future__ import annotations

import base64
import binascii
import logging
import posixpath
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from toolweave._json_types import Json, JsonObject, object_or_empty
from toolweave.config._frontmatter import split_frontmatter
from toolweave.connect._feed.list_reader import EntryReader, list_all
from toolweave.connect._server_features import ServerFeatures
from toolweave.errors import ProtocolError, SkillError, printable
from toolweave.protocol import methods
from toolweave.protocol.codes import METHOD_NOT_FOUND
from toolweave.protocol.content import EmbeddedResource
from toolweave.protocol.server_features import Resource, read_resource
from toolweave.protocol.skills import MAX_SKILL_BYTES, Skill, content_digest, read_skill, same_value, skill_settings

if TYPE_CHECKING:
    from toolweave.connect._transports import OpenSession

_log = logging.getLogger("toolweave.connect")


class SkillFeatures(ServerFeatures):
    """The part of `McpConnection` for skills."""

    @property
    def capabilities(self) -> JsonObject:
        """The server's capabilities as they came; empty before the handshake."""
        raise NotImplementedError

    async def list_skills(self, *, timeout: float | None = None) -> tuple[Skill, ...]:
        """Return the entries of the server's skills, every page of them; none when it does not declare skills.

        No file of a skill is read. Entries that a host must not load are left out, and the log says why. A server need
        not list all its skills: `get_skill` finds one by its URI.

        Raises:
            ServerError: The list could not be read.
        """
        await self._requester.session()
        if not skill_settings(self.capabilities)[0]:
            return ()
        entries = await self._entries(methods.SKILLS_LIST, "skills", {}, timeout)
        read = partial(read_skill, server=self.config.name)
        found = await EntryReader(entries, "uri", read, noun="skill", problem=_problem).read_in_steps()
        for problem in found.problems:
            _log.warning("server %r: %s", self.config.name, printable(problem))
        return found.items

    async def get_skill(self, uri: str, *, timeout: float | None = None) -> Skill:
        """Return the present entry of the skill whose `SKILL.md` has this URI; no file is read.

        Raises:
            ProtocolError: The server has no such skill (-32602), or none at all (-32601).
            SkillError: A host must not load the skill of this entry; the text gives the reason.
        """
        await self._require(methods.SKILLS_GET)
        answer = await self._requester.request(methods.SKILLS_GET, {"uri": uri}, timeout)
        try:
            skill = read_skill(object_or_empty(answer.get("skill")), server=self.config.name)
        except ValueError as exc:
            raise SkillError(f"its entry cannot be used: {exc}", server=self.config.name, uri=uri) from None
        if skill.uri != uri:
            raise SkillError(f"the answer is the entry of {skill.uri!r}", server=self.config.name, uri=uri)
        return skill

    async def load_skill(self, skill: Skill | str, *, timeout: float | None = None) -> LoadedSkill:
        """Read the instructions of a skill, and verify them against its entry: size, digest and frontmatter.

        Ask the user before: a model that follows the instructions of a server acts for it. A skill inside the folder of
        another one is another skill, and needs another approval; bind approvals to `Skill.fingerprint`.

        Args:
            skill: The entry, as `list_skills` or `get_skill` returned it, or the URI, whose present entry is taken.
            timeout: Seconds for each request; by default the server's own bound.

        Raises:
            SkillError: The content does not match the entry; nothing of it may be used. Where the skill has changed
                since, `get_skill` returns the current entry, which needs another approval.
            ProtocolError: The server does not know it.
        """
        if isinstance(skill, str):
            entry = await self.get_skill(skill, timeout=timeout)
        else:
            entry = skill
        if entry.server != self.config.name:
            text = f"it is a skill of server {entry.server!r}"
            raise SkillError(text, server=self.config.name, uri=entry.uri)
        loaded = LoadedSkill(skill=entry, _server=self)
        content = await loaded.read(entry.uri, timeout=timeout)
        try:
            frontmatter, instructions = split_frontmatter(content.text or "")
        except ValueError as exc:
            raise SkillError(str(exc), server=entry.server, uri=entry.uri) from None
        if not same_value(frontmatter, dict(entry.frontmatter)):
            differing = [name for name in {**frontmatter, **entry.frontmatter} if _differ(name, frontmatter, entry)]
            text = f"its frontmatter is not that of its entry: {', '.join(map(repr, differing))} differ"
            raise SkillError(text, server=entry.server, uri=entry.uri)
        loaded.instructions = instructions
        return loaded

    async def list_directory(self, uri: str, *, timeout: float | None = None) -> tuple[Resource, ...]:
        """Return the direct children of a directory resource, every page of them, such as those of a skill's folder.

        It shows the current state of the server; for a loaded skill only the files of its entry count.

        Raises:
            ProtocolError: The server lists no directories (-32601), or this is not a directory (-32602).
        """
        await self._require(methods.RESOURCES_DIRECTORY_READ)
        entries = await self._entries(methods.RESOURCES_DIRECTORY_READ, "resources", {"uri": uri}, timeout)
        found = await EntryReader(entries, "uri", read_resource, noun="resource").read_in_steps()
        return found.items

    async def _entries(self, method: str, key: str, params: JsonObject, timeout: float | None) -> list[Any]:
        """Return the entries of all pages of a list."""
        if timeout is None:
            seconds = self.config.timeout.list
        else:
            seconds = timeout

        async def read(session: OpenSession) -> list[Any]:
            async def request(method: str, paging: JsonObject) -> Json:
                return await session.conversation.request(method, {**params, **paging})

            limit = self.config.max_list_bytes
            return (await list_all(request, method, key, server=self.config.name, max_bytes=limit)).entries

        return await self._requester.with_reconnect(
            lambda session: self._requester.bounded(lambda _: read(session), method, seconds)
        )

    async def _require(self, method: str) -> None:
        """Refuse a request that the server has not declared."""
        await self._requester.session()
        skills, directories = skill_settings(self.capabilities)
        if not (directories if method == methods.RESOURCES_DIRECTORY_READ else skills):
            text = f"it does not offer {method} (its capabilities lack the extension for skills)"
            raise ProtocolError(text, server=self.config.name, code=METHOD_NOT_FOUND)


@dataclass(slots=True, kw_only=True, eq=False)
class LoadedSkill:
    """A skill that was loaded: its instructions, and its files as far as they were read.

    Attributes:
        skill: The entry that it was loaded by; files are read and verified by this one, regardless of later entries.
        instructions: The text of its `SKILL.md` behind the frontmatter. Written by the server: untrusted.
    """

    skill: Skill
    instructions: str = ""
    _server: ServerFeatures = field(repr=False)
    _read: dict[str, EmbeddedResource] = field(default_factory=dict[str, EmbeddedResource], repr=False)
    _bytes: int = 0

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of its files below its folder; empty where the server makes them on demand."""
        root = f"{self.skill.root}/"
        return tuple(unquote(file.uri.removeprefix(root)) for file in self.skill.files or ())

    async def read(self, path: str, *, timeout: float | None = None) -> EmbeddedResource:
        """Return a file of the skill, verified against its entry; a second time from memory.

        Args:
            path: Its path as the instructions have it, relative to the skill's folder, or its URI.
            timeout: Seconds; by default the server's own bound.

        Raises:
            SkillError: The entry has no such file, or its content does not match the entry; it must not be used.
            ServerError: It could not be read.
        """
        uri = self._uri(path)
        known = self._read.get(uri)
        if known is not None:
            return known
        file = self.skill.file(uri)
        if file is None and self.skill.files is not None:
            text = "it is not in the entry by which the skill was loaded; get_skill returns the present entry"
            raise self._error(text, uri)
        found = await self._server.read_resource(uri, timeout=timeout)
        content = next((one for one in found if one.uri == uri), None)
        if content is None:
            raise self._error("the server's answer has no content of this URI", uri)
        data = self._raw(content)
        if file is not None:
            if len(data) != file.size:
                raise self._error(f"it has {len(data):,} bytes, but its entry declares {file.size:,}", uri)
            if content_digest(data) != file.digest:
                raise self._error("its content is not that of the digest in its entry", uri)
        if self._bytes + len(data) > MAX_SKILL_BYTES:
            raise self._error(f"with it the skill has more than {MAX_SKILL_BYTES // 2**20} MiB", uri)
        self._bytes += len(data)
        self._read[uri] = content
        return content

    def _uri(self, path: str) -> str:
        """Return the URI of a path, which must be in the skill's folder."""
        root = f"{self.skill.root}/"
        elsewhere = False
        if path.startswith(root):
            below = posixpath.normpath(unquote(path.removeprefix(root)))
            uri = path
        else:
            elsewhere = "://" in path
            below = posixpath.normpath(path)
            uri = root + quote(below)
        # `normpath` leaves ".." only at the beginning, where it leads out of the folder.
        if elsewhere or below.startswith(("/", "../")) or below in ("", ".", ".."):
            raise self._error("it is not a file in the folder of the skill", path)
        return uri

    def _raw(self, content: EmbeddedResource) -> bytes:
        try:
            if content.text is not None:
                return content.text.encode()
            return base64.b64decode(content.blob or "", validate=True)
        except (UnicodeEncodeError, binascii.Error):
            raise self._error("its content cannot be decoded", content.uri) from None

    def _error(self, message: str, uri: str) -> SkillError:
        return SkillError(message, server=self.skill.server, uri=uri)


def _problem(entry: JsonObject) -> str | None:
    try:
        read_skill(entry)
    except ValueError as exc:
        return str(exc)
    return None


def _differ(name: str, frontmatter: JsonObject, entry: Skill) -> bool:
    if name not in frontmatter or name not in entry.frontmatter:
        return True
    return not same_value(frontmatter[name], entry.frontmatter[name])
