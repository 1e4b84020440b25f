"""The resources, skills, prompts and completions of a server: decorators and sources.

Independent of transports and tools.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ParamSpec, TypeVar, Unpack, overload

from toolweave.protocol import methods
from toolweave.serve._changes import Changes
from toolweave.serve._offers.apps import AppPages
from toolweave.serve._offers.completions import Completions
from toolweave.serve._offers.prompts import FunctionPrompt, PromptLike, Prompts, prompt
from toolweave.serve._offers.registry import DefinitionFields
from toolweave.serve._offers.resources import FunctionResource, ResourceLike, Resources, ResourcesChanged, resource
from toolweave.serve._offers.skills import FunctionSkill, SkillOptions, Skills, skill
from toolweave.serve._request_context import HandlerRunner
from toolweave.serve._tools import ExposeErrors
from toolweave.serve.request import Feature

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")


class ResourceOptions(DefinitionFields, total=False):
    """The options of `@resource`."""

    mime_type: str | None
    size: int | None
    annotations: Mapping[str, Any] | None


class ServerContent:
    """The part of a server that offers resources, skills, prompts and completions.

    Attributes:
        resources: Everything that can be read; add and remove there at any time.
        prompts: Every prompt; add and remove there at any time.
        completions: The completions of arguments of prompts and variables of templates.
    """

    resources: Resources
    prompts: Prompts
    completions: Completions

    def _offer(
        self,
        resources: ResourceLike,
        prompts: PromptLike,
        *,
        changes: Changes,
        runner: HandlerRunner,
        page_size: int | None,
        expose_errors: ExposeErrors | None,
    ) -> Sequence[Feature]:
        """Set up the registries, and return the features."""
        self.resources = Resources(resources, runner=runner, page_size=page_size, expose_errors=expose_errors)
        self.prompts = Prompts(prompts, runner=runner, page_size=page_size, expose_errors=expose_errors)
        self.completions = Completions(
            runner=runner,
            prompts=self.prompts.offers,
            resources=self.resources.offers,
            expose_errors=expose_errors,
        )

        def notify(change: ResourcesChanged) -> None:
            if change.uri is None:
                changes.resources_changed()
            else:
                changes.resource_updated(change.uri)

        self.resources.subscribe(notify)
        self.prompts.subscribe(lambda change: changes.prompts_changed())
        extensions = Skills(self.resources, page_size=page_size), AppPages(self.resources)
        return self.resources, self.prompts, self.completions, *extensions

    def resource(
        self, uri: str, **options: Unpack[ResourceOptions]
    ) -> Callable[[Callable[P, R]], FunctionResource[P, R]]:
        """Offer a function's result as a resource, under a URI or a URI template, also while clients are connected.

        The options are those of `toolweave.serve.resource`.

        Raises:
            SchemaError: The template and the function's parameters do not fit.
            ValueError: The URI or the template is taken.
        """
        make = resource(uri, **options)

        def offer(function: Callable[P, R]) -> FunctionResource[P, R]:
            return self.resources.registry.add(make(function))

        return offer

    @overload
    def prompt(self, function: Callable[P, R], /) -> FunctionPrompt[P, R]: ...
    @overload
    def prompt(self, /, **options: Unpack[DefinitionFields]) -> Callable[[Callable[P, R]], FunctionPrompt[P, R]]: ...
    def prompt(self, function: Any = None, /, **options: Unpack[DefinitionFields]) -> Any:
        """Offer a prompt that a function writes, also while clients are connected.

        The options are those of `toolweave.serve.prompt`.

        Raises:
            SchemaError: No string can be converted to one of the function's parameters.
            ValueError: The name is taken.
        """
        if function is None:
            return partial(self.prompt, **options)
        return self.prompts.registry.add(prompt(**options)(function))

    @overload
    def skill(self, function: Callable[P, R], /) -> FunctionSkill[P, R]: ...
    @overload
    def skill(self, /, **options: Unpack[SkillOptions]) -> Callable[[Callable[P, R]], FunctionSkill[P, R]]: ...
    def skill(self, function: Any = None, /, **options: Unpack[SkillOptions]) -> Any:
        """Offer a skill whose instructions a function writes, also while clients are connected.

        The options are those of `toolweave.serve.skill`.

        Raises:
            SchemaError: The function has a parameter that cannot be filled, or the name or the description is not
                valid.
        """
        if function is None:
            return partial(self.skill, **options)
        made = skill(**options)(function)
        self.resources.add(made)
        return made

    async def learn_offers(self, method: str, params: Mapping[str, Any]) -> None:
        """Have mounted connections and hubs read the lists that rules about resources go by."""
        if method != methods.PROMPTS_GET:
            await self.resources.learn()

    def completion(self, *, ref: str, argument: str) -> Callable[[F], F]:
        """Complete an argument of a prompt, or a variable of a template, by a function (see `Completions.add`).

        Args:
            ref: `"prompt:NAME"` or `"resource:TEMPLATE"`.
            argument: The name of the argument or variable.

        Raises:
            SchemaError: The function has other parameters.
            ValueError: The reference is of another form, or the argument is completed already.
        """
        return partial(self.completions.add, ref, argument)

    def notify_resource_updated(self, uri: str) -> None:
        """Notify the subscribers of a resource that its content changed; from any thread."""
        self.resources.updated(uri)
