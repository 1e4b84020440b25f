"""Prompts and resources of a mounted toolset that has them: a connection, a hub. Requests go to its servers."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, get_args, runtime_checkable

from toolweave.errors import ProtocolError, RequestError, ServerError, as_tool_error
from toolweave.protocol.codes import INVALID_PARAMS, METHOD_NOT_FOUND, RESOURCE_NOT_FOUND
from toolweave.protocol.component_meta import VERSION
from toolweave.protocol.content import EmbeddedResource, block_json, resource_json
from toolweave.protocol.server_features import (
    Prompt,
    PromptResult,
    Resource,
    ResourceTemplate,
    definition,
    prompt_result_json,
)
from toolweave.protocol.uris import normal_uri
from toolweave.serve._namespaces import Namespace
from toolweave.serve._offers.mounted import UriMember, taken_by
from toolweave.serve._offers.prompts import PromptsChanged
from toolweave.serve._offers.resources import ResourcesChanged, ResourceSource
from toolweave.serve._offers.templates import may_expand
from toolweave.serve.request import Json, Offered
from toolweave.tools import CallContext, Unsubscribe

_log = logging.getLogger("toolweave.serve")
_UNKNOWN = (INVALID_PARAMS, RESOURCE_NOT_FOUND)

T = TypeVar("T")


@runtime_checkable
class OffersMore(Protocol):
    """The part of a toolset that has prompts and resources beside its tools."""

    async def list_prompts(self) -> Sequence[Prompt]:
        """Return its prompts."""
        ...

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        version: str | None = None,
        timeout: float | None = None,
    ) -> PromptResult:
        """Return a prompt filled in."""
        ...

    async def list_resources(self) -> Sequence[Resource]:
        """Return its resources."""
        ...

    async def list_resource_templates(self) -> Sequence[ResourceTemplate]:
        """Return its resource templates."""
        ...

    async def read_resource(
        self, uri: str, *, version: str | None = None, timeout: float | None = None
    ) -> Sequence[EmbeddedResource]:
        """Return the contents of a resource."""
        ...

    def on(self, event: Any, listener: Callable[..., Any]) -> Unsubscribe:
        """Call a listener on an event, such as `"prompts_changed"`."""
        ...


class ToolsetPrompts:
    """The prompts of a toolset below a namespace; a `PromptSource`."""

    def __init__(self, toolset: OffersMore, names: Namespace) -> None:
        self._toolset = toolset
        self._names = names

    async def prompts(self) -> Sequence[Json]:
        """Return the definitions of its prompts under exposed names; none while its server does not answer."""
        listed = await _listed(self._toolset.list_prompts)
        return [{**definition(one), "name": self._names.exposed(one.name)} for one in listed or ()]

    async def get(self, name: str, arguments: Mapping[str, Any], ctx: CallContext) -> Json | None:
        """Return the members of a `GetPromptResult`, or None when it has no such prompt.

        Raises:
            RequestError: Its server refuses the request.
            ToolError: Its server does not answer.
        """
        own = self._names.own_name(name)
        if own is None:
            return None
        try:
            # The list decides: the error for an unknown prompt is the one for wrong arguments (-32602), which must
            # reach the caller.
            if all(one.name != own for one in await self._toolset.list_prompts()):
                return None
            version = ctx.meta.get(VERSION)
            found = await self._toolset.get_prompt(own, arguments, version=version, timeout=ctx.timeout)
        except ProtocolError as exc:
            raise RequestError(exc.message, code=exc.code, data=exc.data) from None
        except ServerError as exc:
            raise as_tool_error(exc) from None
        messages = [(one.role, block_json(one.content)) for one in found.messages]
        return prompt_result_json(messages, found.description or None)

    def subscribe(self, listener: Callable[[PromptsChanged], None]) -> Unsubscribe:
        """Call `listener` after every change."""
        return self._toolset.on("prompts_changed", lambda *_: listener(PromptsChanged()))


class ToolsetResources:
    """The resources of a toolset; a `ResourceSource`. URIs stay as they are unless an earlier source has them.

    Args:
        toolset: The toolset.
        names: The namespace.
        earlier: The sources that are asked before it.
    """

    def __init__(self, toolset: OffersMore, names: Namespace, earlier: Sequence[ResourceSource]) -> None:
        self._toolset = toolset
        self._names = names
        self._earlier = earlier
        self._known: Mapping[str, str] = {}  # exposed URIs -> own
        self._templates: Mapping[str, str] = {}  # likewise
        self._spellings: Mapping[str, str] = {}  # normal forms of exposed URIs -> as listed
        self._learned: set[UriMember] = set()  # the lists that were read

    async def resources(self) -> Sequence[Json]:
        """Return the definitions of its resources."""
        return await self.beside("uri", await taken_by(self._earlier, "uri"))

    async def templates(self) -> Sequence[Json]:
        """Return the definitions of its templates."""
        return await self.beside("uriTemplate", await taken_by(self._earlier, "uriTemplate"))

    async def beside(self, member: UriMember, taken: Collection[str]) -> Sequence[Json]:
        """Return the definitions of its resources or templates where others have these URIs; none without an answer."""
        toolset = self._toolset
        if member == "uri":
            listed: Sequence[Resource | ResourceTemplate] | None = await _listed(toolset.list_resources)
        else:
            listed = await _listed(toolset.list_resource_templates)
        if listed is None:
            return ()
        definitions, names = self._under(member, listed, taken)
        if member == "uri":
            self._known = names
            self._spellings = {normal_uri(exposed): exposed for exposed in names}
        else:
            self._templates = names
        self._learned.add(member)
        return definitions

    async def learn(self) -> None:
        """Read its lists, so that `offered` knows them; before they were read, no resource is."""
        await self.resources()
        await self.templates()

    def _under(
        self, member: UriMember, listed: Iterable[Resource | ResourceTemplate], taken: Collection[str]
    ) -> tuple[Sequence[Json], Mapping[str, str]]:
        """Return definitions under exposed URIs or templates, and which are whose."""
        made = list[Json]()
        names = dict[str, str]()
        for entry in map(definition, listed):
            own = entry[member]
            exposed = self._names.qualified(own) if own in taken else own
            made.append({**entry, member: exposed})
            names[exposed] = own
        return made, names

    def _as_listed(self, uri: str) -> str:
        """Return the exposed URI of a resource as it is listed; the same for one that is not."""
        if uri in self._known:
            return uri
        return self._spellings.get(normal_uri(uri), uri)

    def _own(self, uri: str) -> str | None:
        """Return the own URI of an exposed one; None for one of another source, whose exposed URI differs."""
        inner = self._names.own_uri(uri)
        if self._known.get(uri) == uri:
            return uri
        moved = [own for exposed, own in (*self._known.items(), *self._templates.items()) if exposed != own]
        if inner != uri and any(may_expand(one, inner) for one in moved):
            return inner
        if any(may_expand(one, uri) for one in moved):
            return None
        return uri

    async def read(self, uri: str, ctx: CallContext) -> Json | None:
        """Return the members of a `ReadResourceResult`, or None when it has no such resource.

        Raises:
            RequestError: Its server refuses the request.
            ToolError: Its server, which listed the resource, does not answer.
        """
        if len(self._learned) < len(get_args(UriMember)):
            await self.learn()
        listed = self._as_listed(uri)
        if len(self._learned) == len(get_args(UriMember)):
            own = self._own(listed)
        else:
            own = None
        if own is None:
            return None
        try:
            found = await self._toolset.read_resource(own, version=ctx.meta.get(VERSION), timeout=ctx.timeout)
        except ProtocolError as exc:
            # It does not have it, so another source may. Any other error is the answer.
            if exc.code in _UNKNOWN:
                return None
            raise RequestError(exc.message, code=exc.code, data=exc.data) from None
        except ServerError as exc:
            if listed in self._known:
                raise as_tool_error(exc) from None
            _log.info("%s; it was not asked for %r", exc, uri)
            return None  # another source may have it
        return {"contents": [_content(one, own, uri) for one in found]}

    def offered(self, uri: str, version: str | None) -> Sequence[Offered]:
        """Return its offers that a request for a URI may be about, so that rules about them hold for it."""
        fitting = [one for one in self._templates if one != uri and may_expand(one, uri)]
        listed = self._as_listed(uri)
        if listed != uri:
            fitting.append(listed)
        return [Offered("resources", one, ()) for one in fitting]

    def subscribe(self, listener: Callable[[ResourcesChanged], None]) -> Unsubscribe:
        """Call `listener` after every change of the lists."""
        return self._toolset.on("resources_changed", lambda *_: listener(ResourcesChanged()))


async def _listed(ask: Callable[[], Awaitable[Sequence[T]]]) -> Sequence[T] | None:
    """Return a list, or None where its server does not answer: the offers of others are not affected."""
    try:
        return await ask()
    except ServerError as exc:
        if isinstance(exc, ProtocolError) and exc.code == METHOD_NOT_FOUND:
            return ()  # it has no such list
        _log.info("%s; its offers are not listed now", exc)
        return None


def _content(one: EmbeddedResource, own: str, uri: str) -> Json:
    made = resource_json(one.replace(uri=uri) if one.uri == own else one)
    return made | ({"_meta": dict(one.meta)} if one.meta else {})
