"""Filters of `subscriptions/listen`, one for each kind of change (specification 2026-07-28, Subscriptions)."""

from __future__ import annotations

from collections.abc import Mapping

from toolweave.protocol import methods

__all__ = ["FILTERS", "LIST_CHANGED", "LIST_FILTERS", "RESOURCE_SUBSCRIPTIONS", "TASK_IDS"]

LIST_FILTERS: Mapping[str, str] = {
    "tools": "toolsListChanged",
    "prompts": "promptsListChanged",
    "resources": "resourcesListChanged",
}
"""The filter for changes of a list, by the server capability that declares them with `listChanged`."""
RESOURCE_SUBSCRIPTIONS = "resourceSubscriptions"
"""The filter for updates of resources: their URIs."""
TASK_IDS = "taskIds"
"""The filter for changes of tasks, which the extension of tasks adds: their ids."""
LIST_CHANGED: Mapping[str, str] = {
    "tools": methods.NOTIFICATIONS_TOOLS_LIST_CHANGED,
    "prompts": methods.NOTIFICATIONS_PROMPTS_LIST_CHANGED,
    "resources": methods.NOTIFICATIONS_RESOURCES_LIST_CHANGED,
}
"""The notification that a list has changed, by the same capability."""
FILTERS: Mapping[str, str] = {
    **{method: LIST_FILTERS[name] for name, method in LIST_CHANGED.items()},
    methods.NOTIFICATIONS_RESOURCES_UPDATED: RESOURCE_SUBSCRIPTIONS,
}
"""The filter by which a client requests a notification."""
