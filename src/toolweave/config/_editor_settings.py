"""Settings of editors that ours lack: a sandbox, approvals of calls. A protection that cannot be kept is refused.

VS Code runs a server in a sandbox that writes nowhere and reaches nothing, except where its settings allow it. Codex
asks a person about calls, for a whole server or for single tools.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from toolweave._json_types import Json, JsonObject, as_object
from toolweave.config._confinement import Sandbox
from toolweave.config._model import ServerConfig
from toolweave.config._tool_filters import ANY_TOOL, FILTER_WORDS, without
from toolweave.config._value_readers import read_flag
from toolweave.config.validation import check_choice, check_object, check_texts, suggestion
from toolweave.errors import ConfigError

TOOL_SETTINGS = "tool_settings"
"""The word for Codex's `tools`, the settings of single tools."""
_NOT_APPLIED = {
    "required": "a server that fails does not end the program",
    "dev": "a server is not watched or debugged",
    "watch_paths": "a server is not restarted when files change",
}
EDITOR_SETTINGS = (
    *("sandbox_enabled", "default_tools_approval_mode", "trust", "supports_parallel_tool_calls", TOOL_SETTINGS),
    *_NOT_APPLIED,
)
"""The keys of editors that `apply_editor_settings` reads, in snake_case; `sandbox` is also one of ours."""
_PROTECTIONS = frozenset({*FILTER_WORDS, *EDITOR_SETTINGS, "confirm", "sandbox", "limits", "pins", "scan"})
_APPROVALS = "is not applied: the program that calls decides whether a person is asked, such as Agent(confirm=...)"
_CONFIRM = {"prompt": "always", "writes": "writes", "auto": "never", "approve": "never"}
"""Our `confirm` by Codex's approval mode; with `auto`, Codex decides."""
_ALL_DOMAINS = "*"
_SANDBOX: Mapping[str, tuple[str, ...]] = {
    "filesystem": ("allowWrite", "denyRead", "denyWrite"),
    "network": ("allowedDomains", "deniedDomains"),
}
_RESTRICTIONS = frozenset(
    {
        *("sandbox", "sandboxed", "sandboxing", "isolate", "isolated", "isolation", "confine", "confined"),
        *("deny", "denied", "denylist", "block", "blocked", "blocklist", "blacklist", "forbid", "forbidden"),
        *("exclude", "excluded", "excludes", "allowlist", "whitelist", "restrict", "restricted", "restrictions"),
        *("approval", "approvals", "confirm", "confirmation", "permission", "permissions", "readonly", "quarantine"),
    }
)
_INSTEAD = "write a 'sandbox' of ours, such as {'type': 'bwrap', 'network': false}, into a config of your own"


def is_editor_sandbox(value: object) -> bool:
    """Return whether `sandbox` is in VS Code's form, and not a `Sandbox` of ours."""
    given = as_object(value)
    if given is None or "type" in given:
        return False
    return "filesystem" in given or as_object(given.get("network")) is not None


def read_editor_sandbox(value: object) -> Sandbox:
    """Return our sandbox with the restrictions of VS Code's `sandbox`.

    Raises:
        ConfigError: They limit what our sandbox does not: single domains, reading, or folders in a writable one.
    """
    given = check_object({} if value is None else value, "sandbox")
    _check_known(given, tuple(_SANDBOX), "sandbox")
    lists: dict[str, Sequence[str]] = {}
    for part, names in _SANDBOX.items():
        settings = check_object(given.get(part, {}), f"sandbox.{part}")
        _check_known(settings, names, f"sandbox.{part}")
        for name in names:
            lists[name] = check_texts(settings.get(name, ()), f"sandbox.{part}.{name}")
    # Our sandbox has one switch for the network and whole folders that are writable. A finer rule is refused, never
    # rounded: rounding down breaks the server, rounding up drops a protection.
    domains = lists["allowedDomains"]
    if domains and _ALL_DOMAINS not in domains:
        raise _not_kept("network.allowedDomains", "the network can be open or closed, not open for single hosts")
    if domains and lists["deniedDomains"]:
        raise _not_kept("network.deniedDomains", "the network can be open or closed, not closed for single hosts")
    if lists["denyRead"]:
        raise _not_kept("filesystem.denyRead", "everything can be read in our sandbox")
    if lists["allowWrite"] and lists["denyWrite"]:
        raise _not_kept("filesystem.denyWrite", "a folder is writable as a whole")
    return Sandbox(writable=lists["allowWrite"], network=bool(domains))


def _check_known(given: JsonObject, names: Sequence[str], field: str) -> None:
    for key in given:
        if key not in names:
            raise ConfigError(f"{field!r} has no setting {key!r}; {suggestion(key, names)}", field=f"{field}.{key}")


def _not_kept(setting: str, reason: str) -> ConfigError:
    field = f"sandbox.{setting}"
    return ConfigError(f"{field!r} cannot be kept, so the server is not started: {reason}; {_INSTEAD}", field=field)


def is_unknown_protection(word: str, meant: str, value: object) -> bool:
    """Return whether an unknown key would restrict something, so that a server must not start without it.

    Args:
        word: The key in snake_case.
        meant: The known key that it resembles, or `""`.
        value: Its value; one that restricts nothing does not count.
    """
    if value is False or value in ([], {}, ""):
        return False
    return meant in _PROTECTIONS or not _RESTRICTIONS.isdisjoint(word.split("_"))


def apply_editor_settings(out: Json, values: JsonObject, notes: list[str]) -> None:
    """Apply the settings of editors that protect something, and note those that are not applied, protections first.

    Args:
        out: The arguments of the `ServerConfig`, which get the sandbox and the approvals.
        values: The values of the entry by key.
        notes: Gets the remarks for the writer of the entry.

    Raises:
        ConfigError: A protection cannot be kept.
    """
    remarks: list[str] = []
    _apply_sandbox(out, values, remarks)
    _apply_approvals(out, values, remarks)
    if values.get("supports_parallel_tool_calls") is False:
        out.setdefault("max_concurrency", 1)
    for key, reason in _NOT_APPLIED.items():
        if values.get(key):
            remarks.append(f"{key!r} is not applied: {reason}")
    notes[:0] = remarks


def _apply_sandbox(out: Json, values: JsonObject, remarks: list[str]) -> None:
    """Replace a sandbox in VS Code's form by ours if `sandboxEnabled` asks for it, else remove it with a remark."""
    enabled = values.get("sandbox_enabled", False)
    if not isinstance(enabled, bool):
        raise ConfigError("'sandboxEnabled' must be true or false", field="sandboxEnabled")
    given = out.get("sandbox")
    # A sandbox in our own form is applied as it is. Only VS Code's form waits for `sandboxEnabled`.
    if given and not is_editor_sandbox(given):
        return
    out.pop("sandbox", None)
    if not enabled:
        if given:
            remarks.append("'sandbox' is not applied: 'sandboxEnabled' is not true")
        return
    if "command" not in out:
        remarks.append("'sandboxEnabled' is not applied: the server is not a process of this machine")
        return
    out["sandbox"] = read_editor_sandbox(given or None)


def _apply_approvals(out: Json, values: JsonObject, remarks: list[str]) -> None:
    """Read Codex's approvals of calls, and its switches of single tools."""
    found: dict[str, tuple[str, object]] = {}
    if "default_tools_approval_mode" in values:
        found["default_tools_approval_mode"] = (ANY_TOOL, values["default_tools_approval_mode"])
    for tool, settings in check_object(values.get(TOOL_SETTINGS, {}), "tools").items():
        field = f"tools.{tool}"
        given = check_object(settings, field)
        _check_known(given, ("approval_mode", "enabled"), field)
        if "approval_mode" in given:
            found[f"{field}.approval_mode"] = (tool, given["approval_mode"])
        if not read_flag(given.get("enabled", True), f"{field}.enabled"):
            _exclude(out, tool)
    confirm: dict[str, str] = {}
    undecided: list[str] = []
    if values.get("trust") is False:
        undecided.append("trust")
    for field, (tool, mode) in found.items():
        confirm[tool] = _CONFIRM[check_choice(mode, field, tuple(_CONFIRM))]
        if mode == "auto":
            undecided.append(field)
    if set(confirm.values()) - {"never"}:
        out.setdefault("confirm", confirm)
    if undecided:
        remarks.append(f"{' and '.join(map(repr, undecided))} {_APPROVALS}")


def _exclude(out: Json, tool: str) -> None:
    out["exclude"] = [*out.get("exclude", ()), tool]
    if "include" in out:
        out["include"] = without(out["include"], [tool])
        if not out["include"]:
            out["exclude"].append(ANY_TOOL)


def ineffective_settings(config: ServerConfig) -> list[str]:
    """Return remarks about settings that do nothing for a server of this transport, protections first."""
    if config.transport == "stdio":
        given = {"auth": config.auth, "headers": config.headers}
        reason = "has no effect on a stdio server; give the credential in 'env'"
    elif config.transport in ("http", "sse"):
        given = {"sandbox": config.sandbox, "limits": config.limits, "env": config.env, "cwd": config.cwd}
        reason = "has no effect on a server that is not started here"
    else:
        return []
    remarks = [f"{name!r} {reason}" for name, value in given.items() if value]
    auth = config.auth
    if auth is None:
        return remarks
    remarks += [f"unknown key {name!r} of 'auth' is ignored" for name in auth.options]
    if auth.oauth is not None:
        remarks += [f"unknown key {name!r} of a sign-in is ignored" for name in auth.oauth.options]
    return remarks
