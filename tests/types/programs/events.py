"""The types of the values that listeners get."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, assert_type

from toolweave import Hub, McpConnection, ToolsChanged
from toolweave.connect import ListChanged, ResourceUpdated, StateChanged


def on_state(change: StateChanged) -> bool:
    """Get a state."""
    return change.state == "ready"


def on_tools(change: ToolsChanged) -> None:
    """Get the changes of tools."""


def on_list(change: ListChanged) -> None:
    """Get the changes of another list."""


def on_update(update: ResourceUpdated) -> None:
    """Get the update of a resource."""


def on_error(error: Exception) -> None:
    """Get an error."""


def on_text(text: str) -> None:
    """Get a problem."""


def on_notification(notification: tuple[str, Mapping[str, Any]]) -> None:
    """Get a notification."""


def on_hub_state(connection: McpConnection, change: StateChanged) -> None:
    """Get the state of a server of a hub."""


def on_warning(connection: McpConnection, text: str) -> None:
    """Get a warning of a hub."""


def listen(connection: McpConnection, hub: Hub) -> None:
    """Add listeners to a connection and to a hub."""
    assert_type(connection.on("state", on_state), Callable[[], None])
    connection.on("closed", on_state)
    connection.on("tools_changed", on_tools)
    connection.on("prompts_changed", on_list)
    connection.on("resources_changed", on_list)
    connection.on("resource_updated", on_update)
    connection.on("error", on_error)
    connection.on("problem", on_text)
    connection.on("notification", on_notification)
    assert_type(hub.on("state", on_hub_state), Callable[[], None])
    hub.on("warning", on_warning)
    hub.on("problem", on_warning)

    @connection.on("state")
    def changed(change: StateChanged) -> bool:
        return change.state == "ready"

    assert_type(changed(StateChanged(server="files", state=hub.states()["files"], previous=connection.state)), bool)
