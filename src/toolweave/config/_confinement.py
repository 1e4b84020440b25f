"""The confinement of a server's process: limits of its resources, and a sandbox. Values; starts nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self, cast

import msgspec

from toolweave._json_types import Json, JsonObject, as_integer
from toolweave._value import Value
from toolweave.config.validation import check_choice, check_flag, check_object, check_texts, suggestion
from toolweave.errors import ConfigError


class ResourceLimits(Value, frozen=True, kw_only=True):
    """Limits of a server's process that the operating system enforces; each process that it starts inherits them.

    Raises:
        ConfigError: A limit is not a whole number of at least 1.

    Attributes:
        memory_bytes: Memory that a process may have for itself: `RLIMIT_DATA` on Linux, else `RLIMIT_AS`.
        cpu_seconds: Processor time, after which a process gets a signal to end and a second later killed.
        open_files: Files and sockets that are open at once.
        processes: Processes and threads of the same user, others of the user's included; root is not bound by it.
    """

    memory_bytes: int | None = None
    cpu_seconds: int | None = None
    open_files: int | None = None
    processes: int | None = None

    def __post_init__(self) -> None:
        for limit in self.__struct_fields__:
            value: object = getattr(self, limit)
            if value is None:
                continue
            number = as_integer(value)
            if number is None or number < 1:
                name = f"limits.{limit}"
                raise ConfigError(f"{name!r} must be a whole number of at least 1", field=name)

    @classmethod
    def of(cls, value: ResourceLimits | JsonObject | None) -> Self | ResourceLimits | None:
        """Make limits from a mapping of their names; None stays None.

        Raises:
            ConfigError: As the class, or a name is unknown.
        """
        if value is None or isinstance(value, ResourceLimits):
            return value
        if value:
            return cls(**_known(value, "limits", cls.__struct_fields__))
        return None

    def to_mapping(self) -> Json:
        """Return the limits that are set, by name."""
        return self.without_defaults()


class Sandbox(Value, frozen=True, kw_only=True):
    """A sandbox around a server's process: all files read-only, a private temporary folder, no other processes.

    Raises:
        ConfigError: A value is of another type.

    Attributes:
        type: `bwrap`: bubblewrap, on Linux.
        writable: Folders and files that stay writable; `~` is the home folder, relative ones are below `cwd`.
        network: Whether it may use the network. Without it, the host's loopback cannot be reached either.
    """

    type: Literal["bwrap"] = "bwrap"
    writable: Sequence[str] = ()
    network: bool = True

    def __post_init__(self) -> None:
        check_choice(self.type, "sandbox.type", ("bwrap",))
        check_flag(self.network, "sandbox.network")
        msgspec.structs.force_setattr(self, "writable", check_texts(self.writable, "sandbox.writable"))

    @classmethod
    def of(cls, value: Sandbox | JsonObject | str | None) -> Self | Sandbox | None:
        """Make a sandbox from its type, or from a mapping with a `type` and settings; None stays None.

        Raises:
            ConfigError: As the class, or a setting is unknown.
        """
        if value is None or isinstance(value, Sandbox):
            return value
        if isinstance(value, str):
            return cls(type=cast("Any", value))  # checked there
        return cls(**_known(value, "sandbox", cls.__struct_fields__))

    def to_mapping(self) -> Json:
        """Return the settings by name."""
        return {"type": self.type, "writable": list(self.writable), "network": self.network}


def _known(value: object, field: str, names: Sequence[str]) -> Json:
    given = {str(key): item for key, item in check_object(value, field).items() if item is not None}
    for key in given:
        if key not in names:
            raise ConfigError(f"{field!r} has no setting {key!r}; {suggestion(key, names)}", field=f"{field}.{key}")
    return given
