"""Methods of requests and notifications: the name in capitals, each `/` an underscore."""

from __future__ import annotations

__all__ = [
    "ALL",
    "BY_URI",
    "CACHEABLE",
    "COMPLETION_COMPLETE",
    "ELICITATION_CREATE",
    "INITIALIZE",
    "INPUT_REQUIRED",
    "LOGGING_SET_LEVEL",
    "NOTIFICATIONS_CANCELLED",
    "NOTIFICATIONS_ELICITATION_COMPLETE",
    "NOTIFICATIONS_INITIALIZED",
    "NOTIFICATIONS_MESSAGE",
    "NOTIFICATIONS_PROGRESS",
    "NOTIFICATIONS_PROMPTS_LIST_CHANGED",
    "NOTIFICATIONS_RESOURCES_LIST_CHANGED",
    "NOTIFICATIONS_RESOURCES_UPDATED",
    "NOTIFICATIONS_ROOTS_LIST_CHANGED",
    "NOTIFICATIONS_SUBSCRIPTIONS_ACKNOWLEDGED",
    "NOTIFICATIONS_TASKS",
    "NOTIFICATIONS_TASKS_STATUS",
    "NOTIFICATIONS_TOOLS_LIST_CHANGED",
    "PING",
    "PROMPTS_GET",
    "PROMPTS_LIST",
    "RESOURCES_DIRECTORY_READ",
    "RESOURCES_LIST",
    "RESOURCES_READ",
    "RESOURCES_SUBSCRIBE",
    "RESOURCES_TEMPLATES_LIST",
    "RESOURCES_UNSUBSCRIBE",
    "ROOTS_LIST",
    "SAMPLING_CREATE_MESSAGE",
    "SERVER_DISCOVER",
    "SKILLS_GET",
    "SKILLS_LIST",
    "SUBSCRIPTIONS_LISTEN",
    "TASKS_CANCEL",
    "TASKS_GET",
    "TASKS_LIST",
    "TASKS_RESULT",
    "TASKS_UPDATE",
    "TOOLS_CALL",
    "TOOLS_LIST",
]

INITIALIZE = "initialize"
PING = "ping"
SERVER_DISCOVER = "server/discover"
TOOLS_LIST = "tools/list"
TOOLS_CALL = "tools/call"
RESOURCES_LIST = "resources/list"
RESOURCES_TEMPLATES_LIST = "resources/templates/list"
RESOURCES_READ = "resources/read"
RESOURCES_DIRECTORY_READ = "resources/directory/read"
RESOURCES_SUBSCRIBE = "resources/subscribe"
RESOURCES_UNSUBSCRIBE = "resources/unsubscribe"
SUBSCRIPTIONS_LISTEN = "subscriptions/listen"
PROMPTS_LIST = "prompts/list"
PROMPTS_GET = "prompts/get"
SKILLS_LIST = "skills/list"
SKILLS_GET = "skills/get"
COMPLETION_COMPLETE = "completion/complete"
LOGGING_SET_LEVEL = "logging/setLevel"
SAMPLING_CREATE_MESSAGE = "sampling/createMessage"
ELICITATION_CREATE = "elicitation/create"
ROOTS_LIST = "roots/list"
TASKS_GET = "tasks/get"
TASKS_UPDATE = "tasks/update"
TASKS_CANCEL = "tasks/cancel"
TASKS_LIST = "tasks/list"
TASKS_RESULT = "tasks/result"
NOTIFICATIONS_INITIALIZED = "notifications/initialized"
NOTIFICATIONS_CANCELLED = "notifications/cancelled"
NOTIFICATIONS_PROGRESS = "notifications/progress"
NOTIFICATIONS_MESSAGE = "notifications/message"
NOTIFICATIONS_RESOURCES_UPDATED = "notifications/resources/updated"
NOTIFICATIONS_RESOURCES_LIST_CHANGED = "notifications/resources/list_changed"
NOTIFICATIONS_TOOLS_LIST_CHANGED = "notifications/tools/list_changed"
NOTIFICATIONS_PROMPTS_LIST_CHANGED = "notifications/prompts/list_changed"
NOTIFICATIONS_ROOTS_LIST_CHANGED = "notifications/roots/list_changed"
NOTIFICATIONS_TASKS = "notifications/tasks"
NOTIFICATIONS_TASKS_STATUS = "notifications/tasks/status"
NOTIFICATIONS_ELICITATION_COMPLETE = "notifications/elicitation/complete"
NOTIFICATIONS_SUBSCRIPTIONS_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"

ALL: frozenset[str] = frozenset(
    value for name, value in tuple(globals().items()) if name.isupper() and isinstance(value, str)
)
"""The methods above: of requests and of notifications."""
INPUT_REQUIRED = frozenset({TOOLS_CALL, PROMPTS_GET, RESOURCES_READ})
"""Requests of modern revisions that may be answered with `input_required` (SEP-2322)."""
BY_URI = frozenset({RESOURCES_READ, RESOURCES_SUBSCRIBE, RESOURCES_UNSUBSCRIBE, RESOURCES_DIRECTORY_READ, SKILLS_GET})
"""Requests about one resource, which they name by its URI."""
CACHEABLE = frozenset(
    {
        SERVER_DISCOVER,
        TOOLS_LIST,
        PROMPTS_LIST,
        RESOURCES_LIST,
        RESOURCES_TEMPLATES_LIST,
        RESOURCES_READ,
        SKILLS_LIST,
        SKILLS_GET,
    }
)
"""Requests of modern revisions whose complete results have a lifetime: `ttlMs` and `cacheScope`."""
