"""The prompts of a server: the decorator, `prompts/list` and `prompts/get`.

Independent of the transport; changes are reported to listeners.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import (
    Any,
    ClassVar,
    Generic,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    Unpack,
    cast,
    overload,
    runtime_checkable,
)

from toolweave.protocol import methods, server_features
from toolweave.protocol.component_meta import VERSION
from toolweave.serve._offers.conversion import prompt_messages
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
from toolweave.serve._request_context import HandlerRunner
from toolweave.serve._tools import ExposeErrors
from toolweave.serve.request import Json, Method, OfferKind, Request, with_object
from toolweave.tools import CallContext, Unsubscribe
from toolweave.tools._scopes import scope_list
from toolweave.tools.toolset import ChangeListeners

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class PromptsChanged:
    """The list of prompts changed."""


@runtime_checkable
class PromptSource(Protocol):
    """A source of prompts: functions, or another server. Definitions are the protocol's JSON."""

    async def prompts(self) -> Sequence[Json]:
        """Return the definitions of its prompts (`FunctionPrompt`), each with a different `name`."""
        ...

    async def get(self, name: str, arguments: Mapping[str, Any], ctx: CallContext) -> Json | None:
        """Return the members of a `GetPromptResult`, or None when it has no such prompt.

        Raises:
            RequestError: -32602, the arguments are not those of the prompt.
        """
        ...

    def subscribe(self, listener: Callable[[PromptsChanged], None]) -> Unsubscribe:
        """Call `listener` after every change of the list, synchronously."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionPrompt(Generic[P, R]):
    """A prompt whose messages a function writes; made by `prompt`.

    Attributes:
        definition: The definition as it is listed.
        scopes: The OAuth scopes that a caller's token needs.
    """

    name: str
    function: Callable[P, R]
    definition: Json
    handler: StringHandler
    scopes: tuple[str, ...] = ()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself."""
        return self.function(*args, **kwargs)

    async def get(self, arguments: Mapping[str, Any], ctx: CallContext) -> Json:
        """Return the members of a `GetPromptResult`.

        Raises:
            RequestError: -32602, the arguments are not those of the prompt.
        """
        bound = self.handler.bind(arguments, what=f"prompt {self.name!r}")
        messages = prompt_messages(await self.handler.call(bound, ctx))
        return server_features.prompt_result_json(messages, self.definition.get("description"))


@overload
def prompt(function: Callable[P, R], /) -> FunctionPrompt[P, R]: ...
@overload
def prompt(
    function: None = None, /, **about: Unpack[DefinitionFields]
) -> Callable[[Callable[P, R]], FunctionPrompt[P, R]]: ...
def prompt(function: Callable[..., Any] | None = None, /, **about: Unpack[DefinitionFields]) -> Any:
    """Make a prompt of a function; use as `@prompt` or `@prompt(name=...)`.

    Its arguments come from the signature, with the descriptions of `Annotated` and of the docstring; clients send
    strings, which are converted to the annotated types (a list or an object from JSON). A `CallContext` is injected.
    It returns a text, a content block, bytes, a `File` or the `Path` of one, a `PromptTurn`, or a list of any of these;
    the default role is `user`.

    Args:
        function: The function.
        **about: `name`, `title`, `description`, `icons`, `tags`, `version`, `meta` and `scopes`; the name and the
            description are the function's by default.

    Raises:
        SchemaError: No string can be converted to a parameter; names the function and the parameter.
        ValueError: A scope, a tag or the version is not valid.
    """
    if function is None:
        return partial(prompt, **about)
    handler = StringHandler(function)
    listed = server_features.Prompt(arguments=handler.arguments, **described(handler, about))
    definition = checked_definition(server_features.definition(listed), f"prompt {listed.name!r}")
    scopes = scope_list(about.get("scopes", ()))
    return FunctionPrompt(name=listed.name, function=function, definition=definition, handler=handler, scopes=scopes)


class PromptRegistry:
    """A mutable registry of prompts of functions; a `PromptSource`."""

    def __init__(self, prompts: Iterable[FunctionPrompt[..., Any]] = ()) -> None:
        self._prompts = ItemRegistry[FunctionPrompt[..., Any]]("prompt")
        self._listeners = ChangeListeners[PromptsChanged]()
        for item in prompts:
            self.add(item)

    def add(self, item: FunctionPrompt[P, R], *, replace: bool = False) -> FunctionPrompt[P, R]:
        """Offer a prompt, and return it.

        Args:
            item: The prompt.
            replace: Replace the prompt that has its name.

        Raises:
            ValueError: Its name is in use, and not to be replaced.
        """
        self._prompts.add(item.name, item, replace=replace)
        self._listeners.emit(PromptsChanged())
        return item

    def remove(self, name: str) -> None:
        """Stop offering a prompt, in all its versions.

        Raises:
            KeyError: It is not offered.
        """
        self._prompts.remove(name)
        self._listeners.emit(PromptsChanged())

    def keep(self, keep: Callable[[Json], bool]) -> None:
        """Offer only prompts whose definitions `keep` accepts; of the versions of a name the newest of these."""
        self._prompts.keep = keep

    def scopes(self, name: str, version: str | None = None) -> tuple[str, ...]:
        """Return the scopes that a prompt, or one version of it, needs; none if it is unknown."""
        found = self._prompts.get(name, version)
        if found is None:
            return ()
        return found.scopes

    def definition(self, name: str, version: str | None = None) -> Json | None:
        """Return the definition of a prompt, or None."""
        found = self._prompts.get(name, version)
        if found is None:
            return None
        return found.definition

    async def prompts(self) -> Sequence[Json]:
        """Return the definitions of all."""
        return self._prompts.definitions

    async def get(self, name: str, arguments: Mapping[str, Any], ctx: CallContext) -> Json | None:
        """Run the function of a prompt, in the version that the call's `_meta` names; None if it is not offered."""
        found = self._prompts.get(name, ctx.meta.get(VERSION))
        if found is None:
            return None
        return await found.get(arguments, ctx)

    def subscribe(self, listener: Callable[[PromptsChanged], None]) -> Unsubscribe:
        """Call `listener` after every change."""
        return self._listeners.subscribe(listener)

    def __len__(self) -> int:
        return len(self._prompts)


PromptLike: TypeAlias = PromptSource | Iterable[FunctionPrompt[..., Any] | PromptSource | Callable[..., Any]]
"""The values that `prompts=` of a server accepts."""


class Prompts(OffersFeature[PromptSource, PromptsChanged]):
    """The feature: prompts of functions and of any other source, listed in pages and written.

    Args:
        prompts: A source, or a sequence of prompts, functions and sources.
        runner: Runs the functions.
        page_size: Entries on a page of the list; None puts all on one.
        expose_errors: As for tools: the client's view of an unexpected exception.

    Attributes:
        registry: The prompts of functions; add and remove there at any time.

    Raises:
        TypeError: An item is neither a prompt nor a source.
        ValueError: Two prompts have one name.
    """

    kind: ClassVar[OfferKind] = "prompts"
    _capability: ClassVar[Json] = {"listChanged": True}

    def __init__(
        self,
        prompts: PromptLike = (),
        *,
        runner: HandlerRunner,
        page_size: int | None = DEFAULT_PAGE_SIZE,
        expose_errors: ExposeErrors | None = None,
    ) -> None:
        self.registry: PromptRegistry = PromptRegistry()
        super().__init__(self.registry, runner=runner, page_size=page_size, expose_errors=expose_errors)
        self.registry.subscribe(self._listeners.emit)
        if isinstance(prompts, PromptSource):
            self.add(prompts)
            return
        for item in prompts:
            self.add(item)

    def add(self, item: FunctionPrompt[..., Any] | PromptSource | Callable[..., Any]) -> None:
        """Offer a prompt, a function as one, or all of a source.

        Raises:
            SchemaError: A function cannot be called with strings.
            TypeError: The item is neither of them.
            ValueError: Its name is in use.
        """
        if isinstance(item, FunctionPrompt):
            self.registry.add(cast("FunctionPrompt[..., Any]", item))
        elif isinstance(item, PromptSource):
            self._sources.append(item)
            item.subscribe(self._listeners.emit)
            self._listeners.emit(PromptsChanged())
        elif callable(item):
            made: FunctionPrompt[..., Any] = prompt(item)
            self.registry.add(made)
        else:
            raise TypeError(
                f"an object of type {type(item).__name__} offers no prompts; "
                "give a function, one decorated with @prompt, or a PromptSource"
            )

    def remove(self, name: str) -> None:
        """Stop offering a prompt that was given as a function.

        Raises:
            KeyError: It is not offered.
        """
        self.registry.remove(name)

    async def offers(self, name: str) -> bool:
        """Whether a prompt of this name is listed."""
        for source in self._sources:
            if any(entry["name"] == name for entry in await source.prompts()):
                return True
        return False

    async def definitions(self) -> Sequence[Json]:
        """Return the definitions of all prompts."""
        return await joined_entries([source.prompts for source in self._sources], itemgetter("name"))

    async def answer(self, name: str, arguments: Json, ctx: CallContext) -> Json | None:
        """Return the members of a `GetPromptResult`, or None if no source has the prompt."""
        for source in self._sources:
            found = await source.get(name, arguments, ctx)
            if found is not None:
                return found
        return None

    def methods(self, *, modern: bool) -> Mapping[str, Method]:
        """Return `prompts/list` and `prompts/get`."""
        return {methods.PROMPTS_LIST: self._list, methods.PROMPTS_GET: self._get}

    @property
    def _has_functions(self) -> bool:
        return len(self.registry) > 0

    async def _list(self, request: Request) -> Json:
        self._require(request)
        lists = [source.prompts for source in self._sources]
        shows = self._shows(request)
        return await listing("prompts", request, lists, self._page_size, key=itemgetter("name"), shows=shows)

    async def _get(self, request: Request) -> Json:
        self._require(request)
        request = with_object(request)
        work = partial(self._answer, request, request.text("name"), request.object("arguments"))
        return await self._runner.run(request, work)

    async def _answer(self, request: Request, name: str, arguments: Json, ctx: CallContext) -> Json:
        return await self._found(request, name, f"prompt {name!r}", self.answer(name, arguments, ctx))
