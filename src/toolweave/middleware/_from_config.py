"""Middleware of a config file: entries with a name and options, in order, outermost first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple, cast, get_type_hints

import msgspec

from toolweave._value import Value
from toolweave.config.validation import check_object, check_text, kind_of, suggestion
from toolweave.errors import ConfigError
from toolweave.middleware._store_limits import StoreLimits, StoreWatch
from toolweave.serve import Middleware
from toolweave.state import Store

_KINDS: Mapping[str, tuple[str, str]] = {
    "access_rules": ("_access", "AccessRules"),
    "approval": ("_approval", "UserApproval"),
    "audit_log": ("_audit", "AuditLog"),
    "budget": ("_limits", "CallBudget"),
    "cache": ("_cache", "ResponseCache"),
    "rate_limit": ("_limits", "RateLimit"),
    "redaction": ("_redaction", "Redaction"),
    "size_limits": ("_sizes", "SizeLimits"),
    "timing": ("_timing", "Timing"),
}


def middleware_from_config(
    entries: Any,  # whatever a user wrote
    *,
    where: str = "gateway.middleware",
    state_keys: Sequence[str | bytes] | None = None,
    store: Store | None = None,
    watch: StoreWatch | None = None,
) -> tuple[Middleware, ...]:
    """Return the middleware of a list in a config file, outermost first.

    Each entry is an object with a `name` and the options of that middleware: `access_rules`, `approval`, `audit_log`,
    `budget`, `cache`, `rate_limit`, `redaction`, `size_limits`, `timing`. A name with a colon, `package.module:name`,
    is a function or an object of yours; with options, what it returns when it is called with them.

    Args:
        entries: The list as the file has it.
        where: The place of the list in the file, for errors.
        state_keys: Secrets that sign the state of approvals, the newest first, shared by all replicas.
        store: Where rates and budgets are counted together with other processes; by default in this one.
        watch: Finds out when that store is back after an outage; see `StoreLimits`.

    Raises:
        ConfigError: A name or an option is unknown, or a value is wrong; `field` is the place.
    """
    if not isinstance(entries, list | tuple):
        raise ConfigError(f"{where!r} must be a list of middleware, not {kind_of(entries)}", field=where)
    listed = cast("Sequence[Any]", entries)
    shared = _Shared(state_keys, store, watch)
    return tuple(_made(entry, f"{where}[{place}]", shared) for place, entry in enumerate(listed))


class _Shared(NamedTuple):
    """The part of middleware that replicas share."""

    state_keys: Sequence[str | bytes] | None
    store: Store | None
    watch: StoreWatch | None

    def ports(self, name: str, where: str) -> Mapping[str, Any]:
        """Return the arguments that middleware of a name gets beside its options."""
        if name == "approval" and self.state_keys is not None:
            return {"state_keys": tuple(self.state_keys)}
        if name in ("budget", "rate_limit") and self.store is not None:
            # Named by the place in the file: replicas with the same file share a count, two limits in one file do not.
            return {"store": StoreLimits(self.store, name=where, watch=self.watch)}
        return {}


def _made(entry: Any, where: str, shared: _Shared) -> Middleware:
    options = dict(check_object(entry, where))
    if "name" not in options:
        raise ConfigError(f"{where!r} needs a 'name', one of {', '.join(_KINDS)}", field=where)
    name = check_text(options.pop("name"), f"{where}.name")
    if ":" in name:
        return _own(name, options, where)
    if name not in _KINDS:
        hint = suggestion(name, _KINDS)
        raise ConfigError(f"'{where}.name': no middleware is called {name!r}; {hint}", field=f"{where}.name")
    module, kind_name = _KINDS[name]
    kind: type[Value] = getattr(import_module(f"toolweave.middleware.{module}"), kind_name)
    return _built(kind, options, shared.ports(name, where), where=f"{where} ({name})")


def _built(kind: type[Value], options: Mapping[Any, Any], ports: Mapping[str, Any], *, where: str) -> Any:
    # Ports are objects of the program. From a file, a text in their place would fail only at the first request.
    own: frozenset[str] = getattr(kind, "ports", frozenset[str]())
    known = [name for name in kind.__struct_fields__ if name not in own]
    types = get_type_hints(kind)
    values: dict[str, Any] = {}
    try:
        for option, value in options.items():
            if option not in known:
                raise ValueError(f"there is no option {option!r}; {suggestion(option, known)}")
            values[option] = _converted(option, value, types[option])
        return kind(**values, **ports)
    except (ValueError, TypeError) as exc:
        # Also the ConfigError of a rule.
        said = exc.message if isinstance(exc, ConfigError) else str(exc)
        raise ConfigError(f"{where!r}: {said}", field=where.partition(" ")[0]) from None


def _converted(option: str, value: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as exc:
        raise ValueError(f"{option}: {exc}") from None


def _own(name: str, options: Mapping[Any, Any], where: str) -> Any:
    module, _, path = name.partition(":")
    try:
        found: Any = import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
        # A class is not middleware yet, even without options; a function without options is one already.
        if options or isinstance(found, type):
            make: Callable[..., Any] = found
            found = make(**options)
    except Exception as exc:
        # Boundary: code of the file's writer.
        raise ConfigError(f"{where!r}: {name}: {type(exc).__name__}: {exc}", field=f"{where}.name") from exc
    if not callable(found):
        raise ConfigError(f"{where!r}: {name} is not middleware: it cannot be called", field=f"{where}.name")
    return found
