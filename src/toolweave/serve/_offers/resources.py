"""The resources of a server: the decorator, `resources/list`, `resources/templates/list` and `resources/read`.

Independent of the transport; changes are reported to listeners. Files are in `files.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, ClassVar, Generic, ParamSpec, Protocol, TypeAlias, TypeVar, Unpack, runtime_checkable

from toolweave.config.secret_args import mask_url
from toolweave.errors import ErrorKind, RequestError, SchemaError, ToolError
from toolweave.protocol import methods, server_features
from toolweave.protocol.component_meta import VERSION
from toolweave.protocol.uris import normal_uri
from toolweave.serve._offers.conversion import resource_contents
from toolweave.serve._offers.pagination import DEFAULT_PAGE_SIZE, checked_definition
from toolweave.serve._offers.registry import (
    DefinitionFields,
    ItemRegistry,
    OffersFeature,
    described,
    joined_entries,
    listing,
)
from toolweave.serve._offers.string_handlers import StringHandler
from toolweave.serve._offers.templates import Template, is_template
from toolweave.serve._request_context import HandlerRunner
from toolweave.serve._tools import ExposeErrors
from toolweave.serve.request import Json, Method, Offered, OfferKind, Request
from toolweave.tools import CallContext, Unsubscribe
from toolweave.tools._scopes import scope_list
from toolweave.tools.toolset import ChangeListeners

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class ResourcesChanged:
    """The offered resources changed.

    Attributes:
        uri: The resource whose content changed; None if the list of resources or of templates changed.
    """

    uri: str | None = None


@runtime_checkable
class ResourceSource(Protocol):
    """A source of resources: functions, a directory, or another server. Definitions are the protocol's JSON."""

    async def resources(self) -> Sequence[Json]:
        """Return the definitions of its resources (`FunctionResource`), each with a different `uri`."""
        ...

    async def templates(self) -> Sequence[Json]:
        """Return the definitions of its templates (`ResourceTemplate`), each with a different `uriTemplate`."""
        ...

    async def read(self, uri: str, ctx: CallContext) -> Json | None:
        """Return the members of a `ReadResourceResult`, or None when it has no such resource."""
        ...

    def subscribe(self, listener: Callable[[ResourcesChanged], None]) -> Unsubscribe:
        """Call `listener` after every change, synchronously."""
        ...


@runtime_checkable
class OffersElsewhere(Protocol):
    """A source that is another server."""

    def offered(self, uri: str, version: str | None) -> Sequence[Offered]:
        """Return its offers that a request for a URI may be about."""
        ...


@runtime_checkable
class LearnsOffers(Protocol):
    """A source that knows its offers only once it has read its lists."""

    async def learn(self) -> None:
        """Read them, if it can."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionResource(Generic[P, R]):
    """A resource, or a template of resources, that a function reads; made by `resource`.

    Attributes:
        uri: The URI or the template.
        definition: The definition as it is listed.
        scopes: The OAuth scopes that a caller's token needs.
    """

    uri: str
    function: Callable[P, R]
    definition: Json
    handler: StringHandler
    template: Template | None
    scopes: tuple[str, ...] = ()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself."""
        return self.function(*args, **kwargs)

    def match(self, uri: str) -> Mapping[str, str] | None:
        """Return the variables of a URI if it names this resource, else None."""
        if self.template is None:
            if normal_uri(uri) == normal_uri(self.uri):
                return {}
            return None
        return self.template.match(uri)

    async def read(self, uri: str, variables: Mapping[str, str], ctx: CallContext) -> Json | None:
        """Return the members of a `ReadResourceResult`; None when the function returns None."""
        try:
            arguments = self.handler.bind(variables, what=f"resource {uri!r}")
        except RequestError:
            # the text is not a value of the variable's type, so the URI names nothing
            return None
        value = await self.handler.call(arguments, ctx)
        if value is None:
            return None
        return {"contents": resource_contents(value, uri=uri, mime_type=self.definition.get("mimeType"))}


def resource(
    uri: str,
    *,
    mime_type: str | None = None,
    size: int | None = None,
    annotations: Mapping[str, Any] | None = None,
    **about: Unpack[DefinitionFields],
) -> Callable[[Callable[P, R]], FunctionResource[P, R]]:
    """Make a resource of a function; use as `@resource("notes://{id}")`.

    The function has the template's variables as parameters, converted to their annotations, and a `CallContext` if it
    declares one. It returns a text, bytes, a `File` or the `Path` of one, content blocks, a list of these, or any
    JSON value; None means that the resource does not exist. A variable of the path is never empty, and no variable can
    leave a directory that it is used in. Only `{+name}`, `{name*}` and those of a query have slashes.

    Args:
        uri: A URI, or an RFC 6570 template with `{name}`, at most one `{+name}` or `{name*}`, and `{?a,b}` at the end,
            whose variables may be missing, so that their parameters have defaults.
        mime_type: The MIME type of its content; by default it is derived from each value, and is not listed.
        size: In bytes, of a resource without variables.
        annotations: Hints of the specification, such as `{"audience": ["user"], "priority": 0.8}`.
        **about: `name`, `title`, `description`, `icons`, `tags`, `version`, `meta` and `scopes`; the name and the
            description are the function's by default.

    Raises:
        SchemaError: The template and the function's parameters do not fit, or one of them is wrong.
        TypeError: It is used without a URI.
        ValueError: A scope, a tag or the version is not valid.
    """
    if not isinstance(uri, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # `@resource` without its parentheses
        raise TypeError("a resource is made with its URI, as in @resource('notes://{id}')")
    template = None
    if is_template(uri):
        template = Template(uri)
    scopes = scope_list(about.get("scopes", ()))
    if template is None and ":" not in uri:
        raise SchemaError(f"resource {uri!r} is not a URI: it needs a scheme, such as 'notes://{uri}'")

    def make(function: Callable[P, R]) -> FunctionResource[P, R]:
        handler = StringHandler(function)
        _check(uri, template, handler)
        fields: Json = {**described(handler, about), "mime_type": mime_type, "annotations": annotations}
        if template is None:
            listed = server_features.Resource(uri=uri, size=size, **fields)
        else:
            listed = server_features.ResourceTemplate(uri_template=uri, **fields)
        definition = checked_definition(server_features.definition(listed), f"resource {uri!r}")
        return FunctionResource(
            uri=uri, function=function, definition=definition, handler=handler, template=template, scopes=scopes
        )

    return make


def _check(uri: str, template: Template | None, handler: StringHandler) -> None:
    variables: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    if template is not None:
        variables = template.variables
        optional = template.optional
    parameters = {argument.name for argument in handler.arguments}
    for variable in variables:
        if variable not in parameters:
            raise SchemaError(f"resource {uri!r}: function {handler.name!r} has no parameter {variable!r}")
    for argument in handler.arguments:
        if not argument.required:
            continue
        if argument.name in optional:
            raise SchemaError(
                f"resource {uri!r}: a URI may lack {argument.name!r}; give the parameter of {handler.name!r} a default"
            )
        if argument.name not in variables:
            raise SchemaError(f"resource {uri!r} has no variable for parameter {argument.name!r} of {handler.name!r}")


class ResourceRegistry:
    """A mutable registry of resources of functions; a `ResourceSource`."""

    def __init__(self, resources: Iterable[FunctionResource[..., Any]] = ()) -> None:
        self._fixed = ItemRegistry[FunctionResource[..., Any]]("resource")
        self._templates = ItemRegistry[FunctionResource[..., Any]]("resource template")
        self._listeners = ChangeListeners[ResourcesChanged]()
        for item in resources:
            self.add(item)

    def add(self, item: FunctionResource[P, R], *, replace: bool = False) -> FunctionResource[P, R]:
        """Offer a resource, and return it.

        Args:
            item: The resource.
            replace: Replace the resource that has its URI or template, and notify its subscribers.

        Raises:
            ValueError: Its URI or template is in use, and not to be replaced.
        """
        before = self._registry_of(item.uri).add(_key(item.uri), item, replace=replace)
        # Subscribers of the content and listeners of the list are different clients: a replacement with the same
        # definition changes the content alone.
        if before is not None:
            self.updated(item.uri)
        if before is None or before.definition != item.definition:
            self._listeners.emit(ResourcesChanged())
        return item

    def remove(self, uri: str) -> None:
        """Stop offering the resource, or the template, in all its versions.

        Raises:
            KeyError: It is not offered.
        """
        self._registry_of(uri).remove(_key(uri))
        self._listeners.emit(ResourcesChanged())

    def updated(self, uri: str) -> None:
        """Notify that a resource's content changed."""
        self._listeners.emit(ResourcesChanged(uri))

    def subscribe(self, listener: Callable[[ResourcesChanged], None]) -> Unsubscribe:
        """Call `listener` after every change."""
        return self._listeners.subscribe(listener)

    def keep(self, keep: Callable[[Json], bool]) -> None:
        """Offer only resources whose definitions `keep` accepts; of the versions of a URI the newest of these."""
        self._fixed.keep = keep
        self._templates.keep = keep

    def _registry_of(self, uri: str) -> ItemRegistry[FunctionResource[..., Any]]:
        if is_template(uri):
            return self._templates
        return self._fixed

    def find(self, uri: str, version: str | None = None) -> tuple[FunctionResource[..., Any], Mapping[str, str]] | None:
        """Return the resource of a URI with the values of its variables; one without variables comes first.

        Args:
            uri: The URI.
            version: The version to find; None for the newest.
        """
        key = normal_uri(uri)
        # A URI that is written out wins over every template that fits it, also when the version asked for is not there:
        # a template must not answer for a resource that its author has versioned.
        fixed = self._fixed.get(key)
        if fixed is not None:
            fixed = self._fixed.get(key, version)
            if fixed is None:
                return None
            return (fixed, {})
        # In the order of registration, and the first that fits: authors put the special template before the general
        # one.
        for candidate in self._templates.listed:
            variables = candidate.match(uri)
            if variables is not None:
                found = self._templates.get(candidate.uri, version)
                if found is None:
                    return None
                return (found, variables)
        return None

    def scopes(self, uri: str, version: str | None = None) -> tuple[str, ...]:
        """Return the scopes that a listed resource or template needs; none if it is unknown."""
        found = self._registry_of(uri).get(_key(uri), version)
        if found is None:
            return ()
        return found.scopes

    def definition(self, uri: str, version: str | None = None) -> Json | None:
        """Return the definition of the resource or the template of a URI, or of the template itself, or None."""
        if is_template(uri):
            template = self._templates.get(uri, version)
            if template is None:
                return None
            return template.definition
        found = self.find(uri, version)
        if found is None:
            return None
        return found[0].definition

    async def resources(self) -> Sequence[Json]:
        """Return the definitions of the resources without variables."""
        return self._fixed.definitions

    async def templates(self) -> Sequence[Json]:
        """Return the definitions of the resource templates."""
        return self._templates.definitions

    async def read(self, uri: str, ctx: CallContext) -> Json | None:
        """Run the function of a URI, in the version that the call's `_meta` names; None if nothing is offered."""
        found = self.find(uri, ctx.meta.get(VERSION))
        if found is None:
            return None
        return await found[0].read(uri, found[1], ctx)

    def __len__(self) -> int:
        return len(self._fixed) + len(self._templates)


def _key(uri: str) -> str:
    """Return the key of a resource or a template: the spellings of one URI have the same."""
    if is_template(uri):
        return uri
    return normal_uri(uri)


ResourceLike: TypeAlias = ResourceSource | Iterable[FunctionResource[..., Any] | ResourceSource]
"""The values that `resources=` of a server accepts."""


class Resources(OffersFeature[ResourceSource, ResourcesChanged]):
    """The feature: resources of functions and of any other source, listed in pages and read.

    Args:
        resources: A source, or a sequence of resources and sources.
        runner: Runs the functions.
        page_size: Entries on a page of a list; None puts all on one.
        expose_errors: As for tools: the client's view of an unexpected exception.

    Attributes:
        registry: The resources of functions; add and remove there at any time.

    Raises:
        TypeError: An item is neither a resource nor a source.
        ValueError: Two resources have one URI.
    """

    kind: ClassVar[OfferKind] = "resources"
    _capability: ClassVar[Json] = {"subscribe": True, "listChanged": True}

    def __init__(
        self,
        resources: ResourceLike = (),
        *,
        runner: HandlerRunner,
        page_size: int | None = DEFAULT_PAGE_SIZE,
        expose_errors: ExposeErrors | None = None,
    ) -> None:
        self.registry: ResourceRegistry = ResourceRegistry()
        super().__init__(self.registry, runner=runner, page_size=page_size, expose_errors=expose_errors)
        self.registry.subscribe(self._listeners.emit)
        if isinstance(resources, ResourceSource):
            self.add(resources)
            return
        for item in resources:
            self.add(item)

    def add(self, item: FunctionResource[..., Any] | ResourceSource) -> None:
        """Offer a resource, or all of a source.

        Raises:
            TypeError: It is neither.
            ValueError: Its URI or template is taken.
        """
        if isinstance(item, FunctionResource):
            self.registry.add(item)
        elif isinstance(item, ResourceSource):  # pyright: ignore[reportUnnecessaryIsInstance]  # strangers pass anything
            self._sources.append(item)
            item.subscribe(self._listeners.emit)
            self._listeners.emit(ResourcesChanged())
        else:
            raise TypeError(
                f"an object of type {type(item).__name__} offers no resources; "
                "give a function decorated with @resource(URI) or a ResourceSource"
            )

    @property
    def sources(self) -> Sequence[ResourceSource]:
        """All sources, the functions first."""
        return tuple(self._sources)

    def remove(self, uri: str) -> None:
        """Stop offering a resource, or a template, that was given as a function.

        Raises:
            KeyError: It is not offered.
        """
        self.registry.remove(uri)

    def updated(self, uri: str) -> None:
        """Notify that a resource's content changed."""
        self.registry.updated(uri)

    async def offers(self, uri: str) -> bool:
        """Whether a resource or a template is listed under exactly this URI."""
        for source in self._sources:
            if any(entry["uri"] == uri for entry in await source.resources()):
                return True
            if any(entry["uriTemplate"] == uri for entry in await source.templates()):
                return True
        return False

    async def definitions(self) -> Sequence[Json]:
        """Return the definitions of all resources."""
        return await joined_entries([source.resources for source in self._sources], itemgetter("uri"))

    async def template_definitions(self) -> Sequence[Json]:
        """Return the definitions of all resource templates."""
        return await joined_entries([source.templates for source in self._sources], itemgetter("uriTemplate"))

    async def learn(self) -> None:
        """Have each source that is another server read its lists."""
        for source in self._sources:
            if isinstance(source, LearnsOffers):
                await source.learn()

    async def answer(self, uri: str, ctx: CallContext) -> Json | None:
        """Return the members of a `ReadResourceResult`, or None if no source has the resource."""
        for source in self._sources:
            try:
                found = await source.read(uri, ctx)
            except ToolError as exc:
                if exc.kind is ErrorKind.NOT_FOUND:
                    return None
                raise
            if found is not None:
                return found
        return None

    def methods(self, *, modern: bool) -> Mapping[str, Method]:
        """Return the methods that list and read."""
        return {
            methods.RESOURCES_LIST: self._list,
            methods.RESOURCES_TEMPLATES_LIST: self._list_templates,
            methods.RESOURCES_READ: self._read,
        }

    @property
    def _has_functions(self) -> bool:
        return len(self.registry) > 0

    async def _list(self, request: Request) -> Json:
        self._require(request)
        lists = [source.resources for source in self._sources]
        shows = self._shows(request)
        return await listing("resources", request, lists, self._page_size, key=itemgetter("uri"), shows=shows)

    async def _list_templates(self, request: Request) -> Json:
        self._require(request)
        lists = [source.templates for source in self._sources]
        key = itemgetter("uriTemplate")
        shows = self._shows(request)
        return await listing("resourceTemplates", request, lists, self._page_size, key=key, shows=shows)

    async def _read(self, request: Request) -> Json:
        self._require(request)
        uri = request.text("uri")
        return await self._runner.run(request, partial(self._answer, request, uri))

    async def _answer(self, request: Request, uri: str, ctx: CallContext) -> Json:
        return await self._found(request, uri, f"reading resource {mask_url(uri)!r}", self.answer(uri, ctx))
