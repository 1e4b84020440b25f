"""Prompts and resources of servers in a conversation: listed, found by their names, and read."""

from __future__ import annotations

import shlex

from toolweave.agent import Prompt
from toolweave.cli._commands.prompts import find_prompt, prompts_of, show_prompts, text_values
from toolweave.cli._commands.resources import owner_of, resources_of, show_contents, show_resources
from toolweave.cli._exit_codes import CommandError
from toolweave.cli._servers import OpenServers
from toolweave.protocol.server_features import PromptResult


async def list_prompts(fleet: OpenServers) -> None:
    """Show the prompts of every server."""
    show_prompts(await fleet.ask(prompts_of))


async def list_resources(fleet: OpenServers) -> None:
    """Show the resources and templates of every server."""
    show_resources(await fleet.ask(resources_of))


async def filled_prompt(fleet: OpenServers, typed: str) -> PromptResult:
    """Fill in the prompt that is typed as `NAME key=value`.

    Raises:
        CommandError: No server has the prompt, several have it, or an argument is missing or is not understood.
        ServerError: The server cannot fill it in.
    """
    try:
        name, *words = shlex.split(typed)
    except ValueError as error:
        raise CommandError(f"the arguments cannot be split: {error}", hint="/prompt NAME key='two words'") from None
    values = text_values(words)
    server, prompt = find_prompt(fleet, await fleet.ask(prompts_of), name, values)
    return await fleet.hub.clients[server].get_prompt(prompt, values)


def prompt_message(filled: PromptResult) -> Prompt:
    """Return the messages of a filled-in prompt, to be sent to a model.

    Raises:
        CommandError: They end with a message of the model, so that there is nothing to answer.
    """
    prompt = Prompt.from_mcp(filled)
    try:
        prompt.messages()
    except ValueError as error:
        raise CommandError(str(error)) from None
    return prompt


async def show_resource(fleet: OpenServers, uri: str) -> None:
    """Show a resource.

    Raises:
        CommandError: No server has the resource, or several have it.
        ServerError: The server cannot read it.
    """
    owner = await owner_of(fleet, uri)
    show_contents(await owner.read_resource(uri))


async def resource_message(fleet: OpenServers, uri: str, text: str) -> Prompt:
    """Read a resource and return it with a text about it, as one message.

    Raises:
        CommandError: No server has the resource, or several have it.
        ServerError: The server cannot read it.
    """
    owner = await owner_of(fleet, uri)
    # As a variable, whose value is not expanded: the text may have braces in it.
    about = Prompt("{{text}}", variables={"text": text})
    return about.add_file(await owner.read_resource(uri), name=uri)
