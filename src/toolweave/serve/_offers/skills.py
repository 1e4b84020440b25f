"""The skills of a server (SEP-2640): their sources, `skills/list`, `skills/get` and `resources/directory/read`.

A skill is a set of resources, so its sources are sources of resources. Folders of them are in `skill_folder.py`.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import (
    Any,
    Generic,
    ParamSpec,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
    runtime_checkable,
)
from urllib.parse import quote

from toolweave.errors import RequestError, SchemaError
from toolweave.protocol import methods
from toolweave.protocol.codes import INVALID_PARAMS, METHOD_NOT_FOUND
from toolweave.protocol.server_features import Resource, definition
from toolweave.protocol.skills import MARKDOWN_TYPE, SKILL_MANIFEST, Skill, name_problem, skills_capability
from toolweave.protocol.uris import normal_uri
from toolweave.serve._offers.conversion import resource_contents
from toolweave.serve._offers.pagination import DEFAULT_PAGE_SIZE, checked_definition, list_page, only_for_caller
from toolweave.serve._offers.registry import listing
from toolweave.serve._offers.resources import Resources, ResourcesChanged, ResourceSource
from toolweave.serve._offers.string_handlers import StringHandler
from toolweave.serve.request import Json, Method, Request
from toolweave.tools import CallContext, Unsubscribe

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


@runtime_checkable
class SkillSource(ResourceSource, Protocol):
    """A source of skills, whose files are its resources. Entries are the protocol's JSON."""

    async def skills(self) -> Sequence[Json]:
        """Return the entries of its skills (`Skill`), each with a different `uri`."""
        ...

    async def skill(self, uri: str) -> Json | None:
        """Return the entry of the skill whose `SKILL.md` has this URI, or None when it has no such skill."""
        ...

    async def children(self, uri: str) -> Sequence[Json] | None:
        """Return the definitions of a folder's direct children, or None when it has no such folder."""
        ...


class SkillOptions(TypedDict, total=False):
    """The options of `@skill`.

    Attributes:
        name: Its name; by default the function's, with hyphens.
        description: When a model should use it; the function's docstring by default.
        prefix: Segments before the name in its URI, such as `"reports"`.
        frontmatter: Further fields of its frontmatter, such as `license`.
    """

    name: str | None
    description: str | None
    prefix: str
    frontmatter: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSkill(Generic[P, R]):
    """A skill whose instructions a function writes, made by `skill`; a `SkillSource`.

    Attributes:
        entry: Its entry.
    """

    function: Callable[P, R]
    entry: Skill
    handler: StringHandler

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself."""
        return self.function(*args, **kwargs)

    async def skills(self) -> Sequence[Json]:
        """Return its entry."""
        return [self.entry.json()]

    async def skill(self, uri: str) -> Json | None:
        """Return its entry, if that is its URI."""
        if normal_uri(uri) == normal_uri(self.entry.uri):
            return self.entry.json()
        return None

    async def children(self, uri: str) -> Sequence[Json] | None:
        """Return its only file, if that is the URI of its folder."""
        if uri != self.entry.root:
            return None
        return [definition(Resource(uri=self.entry.uri, name=SKILL_MANIFEST, mime_type=MARKDOWN_TYPE))]

    async def resources(self) -> Sequence[Json]:
        """Return the definition of its only file."""
        entry = self.entry
        about = Resource(uri=entry.uri, name=entry.name, description=entry.description, mime_type=MARKDOWN_TYPE)
        return [definition(about)]

    async def templates(self) -> Sequence[Json]:
        """Return nothing."""
        return ()

    async def read(self, uri: str, ctx: CallContext) -> Json | None:
        """Return its frontmatter and the text that the function writes."""
        if normal_uri(uri) != normal_uri(self.entry.uri):
            return None
        # JSON is YAML
        as_yaml = partial(json.dumps, ensure_ascii=False)
        text = "---\n"
        for name, value in self.entry.frontmatter.items():
            text += f"{as_yaml(name)}: {as_yaml(value)}\n"
        text += f"---\n\n{await self.handler.call({}, ctx)}"
        return {"contents": resource_contents(text, uri=uri, mime_type=MARKDOWN_TYPE)}

    def subscribe(self, listener: Callable[[ResourcesChanged], None]) -> Unsubscribe:
        """Do nothing: it is unknown when the function would write another text."""
        return lambda: None


@overload
def skill(function: Callable[P, R], /) -> FunctionSkill[P, R]: ...
@overload
def skill(
    function: None = None, /, **options: Unpack[SkillOptions]
) -> Callable[[Callable[P, R]], FunctionSkill[P, R]]: ...
def skill(function: Callable[..., Any] | None = None, /, **options: Unpack[SkillOptions]) -> Any:
    """Make a skill of a function that writes its instructions, in Markdown; use as `@skill` or `@skill(name=...)`.

    Its content is made for each reading, so that clients cannot verify it, and some may decline it. Put a skill that is
    always the same into a folder (`skills`). A `CallContext` is injected; other parameters are not possible.

    Args:
        function: The function; it returns a text.
        **options: `name`, by default the function's with hyphens; `description`, by default its docstring; `prefix`,
            the segments before the name in its URI; `frontmatter`, further fields of that.

    Raises:
        SchemaError: The function has a parameter that cannot be filled, or the name or the description is not valid.
    """
    if function is None:
        return partial(skill, **options)
    handler = StringHandler(function)
    name = options.get("name") or handler.name.replace("_", "-")
    description = options.get("description") or handler.description
    problem = name_problem(name)
    if problem is None and not description:
        problem = "it has no description; give the function a docstring"
    if problem is None and handler.arguments:
        problem = f"nobody gives the parameter {handler.arguments[0].name!r} of its function"
    if problem is not None:
        raise SchemaError(f"skill {name!r}: {problem}")
    path = filter(None, (*options.get("prefix", "").split("/"), name, SKILL_MANIFEST))
    uri = "skill://" + "/".join(quote(part, safe="") for part in path)
    frontmatter: Json = {"name": name, "description": description}
    for field, value in (options.get("frontmatter") or {}).items():
        # The name and the description were checked above, and further fields must not replace them.
        frontmatter.setdefault(field, value)
    entry = Skill(uri=uri, frontmatter=frontmatter, files=None)
    checked_definition(entry.json(), f"skill {name!r}")
    return FunctionSkill(function=function, entry=entry, handler=handler)


class Skills:
    """The feature: the skills among the resources, listed in pages and found by URI, and the folders that they are in.

    Args:
        resources: The resources.
        page_size: Entries on a page of a list; None puts all on one.
    """

    def __init__(self, resources: Resources, *, page_size: int | None = DEFAULT_PAGE_SIZE) -> None:
        self._resources = resources
        self._page_size = page_size

    def methods(self, *, modern: bool) -> Mapping[str, Method]:
        """Return the methods of the extension."""
        return {
            methods.SKILLS_LIST: self._list,
            methods.SKILLS_GET: self._get,
            methods.RESOURCES_DIRECTORY_READ: self._read_directory,
        }

    def capabilities(self, *, modern: bool) -> Mapping[str, Any]:
        """Return the extension, once there are skills."""
        if self._sources:
            return skills_capability()
        return {}

    @property
    def _sources(self) -> Sequence[SkillSource]:
        return [source for source in self._resources.sources if isinstance(source, SkillSource)]

    async def _list(self, request: Request) -> Json:
        lists = [source.skills for source in self._offered(request)]
        shows = self._shows(request)
        return await listing("skills", request, lists, self._page_size, key=itemgetter("uri"), shows=shows)

    async def _get(self, request: Request) -> Json:
        uri = request.text("uri")
        found = await self._first(request, uri, lambda source: source.skill(uri))
        if found is None:
            raise RequestError(f"No skill is served at {uri}", code=INVALID_PARAMS, data={"uri": uri})
        if request.client.may is None:
            return {"skill": found}
        return {"skill": found} | only_for_caller(request)

    async def _read_directory(self, request: Request) -> Json:
        uri = request.text("uri")
        children = await self._first(request, uri, lambda source: source.children(uri))
        if children is None:
            raise RequestError(f"{uri} is not a directory resource", code=INVALID_PARAMS, data={"uri": uri})
        shows = self._shows(request)
        if shows is not None:
            children = [one for one in children if shows(one["uri"])]
        return list_page("resources", children, request.params.get("cursor"), self._page_size, key=itemgetter("uri"))

    async def _first(self, request: Request, uri: str, ask: Callable[[SkillSource], Awaitable[T | None]]) -> T | None:
        """Return the first answer that a source has; None for a caller who may not see the URI."""
        sources = self._offered(request)
        shows = self._shows(request)
        # Before any source is asked: a hidden skill takes as long, and gets the same answer, as one that does not
        # exist.
        if shows is not None and not shows(uri):
            return None
        for source in sources:
            found = await ask(source)
            if found is not None:
                return found
        return None

    def _shows(self, request: Request) -> Callable[[str], bool] | None:
        may = request.client.may
        if may is None:
            return None
        return lambda uri: may("resources", uri, ())

    def _offered(self, request: Request) -> Sequence[SkillSource]:
        sources = self._sources
        if not sources:
            raise RequestError("Method not found", code=METHOD_NOT_FOUND, data=request.method)
        return sources
