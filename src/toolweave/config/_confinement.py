"""The confinement of a server's process: limits of its resources, and a sandbox. Values; starts nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, cast

import msgspec

from toolweave._value import Value
from toolweave.config._validation import check_choice, check_flag, check_object, check_texts, kind_of, suggestion
from toolweave.errors import ConfigError


class ResourceLimits(Value, frozen=True, kw_only=True):
    """Limits of a server's process that the operating system enforces; each process that it starts has them too.

    Raises:
        ConfigError: A limit is no whole number of at least 1.

    Attributes:
        memory_bytes: Memory of its own that a process may have: `RLIMIT_DATA` on Linux, else `RLIMIT_AS`.
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
            value = getattr(self, limit)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                name = f"limits.{limit}"
                raise ConfigError(f"{name!r} must be a whole number of at least 1", field=name)

    @classmethod
    def of(cls, value: ResourceLimits | Mapping[str, Any] | None) -> Self | ResourceLimits | None:
        """Make limits from a mapping of their names; None for none.

        Raises:
            ConfigError: As the class, or a name is unknown.
        """
        if value is None or isinstance(value, ResourceLimits):
            return value
        if value:
            return cls(**_known(value, "limits", cls.__struct_fields__))
        return None

    def to_mapping(self) -> dict[str, Any]:
        """Return the limits that are set, by name."""
        return {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}


class Sandbox(Value, frozen=True, kw_only=True):
    """A sandbox around a server's process: everything read-only, a temporary folder of its own, own processes only.

    Raises:
        ConfigError: A value is of another type.

    Attributes:
        type: `bwrap`: bubblewrap, on Linux.
        writable: Folders and files that stay writable; `~` is the home folder, relative ones are below `cwd`.
        network: Whether it may use the network. Without it there is no loopback to the host either.
    """

    type: Literal["bwrap"] = "bwrap"
    writable: Sequence[str] = ()
    network: bool = True

    def __post_init__(self) -> None:
        check_choice(self.type, "sandbox.type", ("bwrap",))
        check_flag(self.network, "sandbox.network")
        msgspec.structs.force_setattr(self, "writable", check_texts(self.writable, "sandbox.writable"))

    @classmethod
    def of(cls, value: Sandbox | Mapping[str, Any] | str | None) -> Self | Sandbox | None:
        """Make a sandbox from its type, or from a mapping with a `type` and settings; None for none.

        Raises:
            ConfigError: As the class, or a setting is unknown.
        """
        if value is None or isinstance(value, Sandbox):
            return value
        if isinstance(value, str):
            return cls(type=cast("Any", value))  # checked there
        return cls(**_known(value, "sandbox", cls.__struct_fields__))

    def to_mapping(self) -> dict[str, Any]:
        """Return the settings by name."""
        return {"type": self.type, "writable": list(self.writable), "network": self.network}


def _known(value: Any, field: str, names: Sequence[str]) -> dict[str, Any]:  # Any: whatever a user wrote
    if not isinstance(value, Mapping):
        raise ConfigError(f"{field!r} must be an object, not {kind_of(value)}", field=field)
    given = {str(key): item for key, item in check_object(value, field).items() if item is not None}
    for key in given:
        if key not in names:
            raise ConfigError(f"{field!r} has no setting {key!r}; {suggestion(key, names)}", field=f"{field}.{key}")
    return given
