"""A server as it is started or reached, with its secrets as separate values: the source of a config's entry."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import ClassVar, Literal

import msgspec

from toolweave._value import Value
from toolweave.config import Secret
from toolweave.errors import RegistryError
from toolweave.install._records import shown

_REFERENCE = re.compile(r"\$[{(A-Za-z_]|\{(?:env|file|secret|input):")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class SecretWord(Value, frozen=True, kw_only=True):
    """A secret in a word of a command line, a variable, a header or a URL.

    Attributes:
        name: Under which it is kept.
        description: For the person who is asked for it.
        value: The secret; None where it is asked for later, by the program that starts the server.
    """

    quiet: ClassVar[frozenset[str]] = frozenset({"value"})

    name: str
    description: str = ""
    value: Secret | None = None


LaunchWord = tuple[str | SecretWord, ...]
"""A text in parts, some of which may be secret."""


class ServerLaunch(Value, frozen=True, kw_only=True):
    """A server as it is started (`stdio`) or reached (`http`, `sse`).

    Attributes:
        command: The program.
        args: Its arguments, each one word: no shell ever reads them.
        env: The variables it gets beside those that every server gets.
        url: The URL of a server that runs elsewhere.
        headers: The headers it is sent.
        notes: Remarks for the person who installs it.
    """

    transport: Literal["stdio", "http", "sse"] = "stdio"
    command: str = ""
    args: tuple[LaunchWord, ...] = ()
    env: Mapping[str, LaunchWord] = msgspec.field(default_factory=dict[str, LaunchWord])
    url: LaunchWord = ()
    headers: Mapping[str, LaunchWord] = msgspec.field(default_factory=dict[str, LaunchWord])
    notes: tuple[str, ...] = ()

    @property
    def secrets(self) -> tuple[SecretWord, ...]:
        """Its secrets, one for each name."""
        words = (*self.args, *self.env.values(), self.url, *self.headers.values())
        found = {part.name: part for word in words for part in word if isinstance(part, SecretWord)}
        return tuple(found.values())

    @property
    def secrets_in_arguments(self) -> tuple[str, ...]:
        """The names of the secrets that the server takes on its command line, where other programs can read them."""
        found = (part.name for word in self.args for part in word if isinstance(part, SecretWord))
        return tuple(dict.fromkeys(found))

    def lines(self) -> Iterator[str]:
        """Yield the command or the address, one fact a line, with secrets by their names alone."""
        if self.transport == "stdio":
            yield " ".join(map(_quoted, (self.command, *(rendered(word, _named) for word in self.args))))
        else:
            yield rendered(self.url, _named)
        for name, word in (*self.env.items(), *self.headers.items()):
            yield f"  {name}{'=' if self.transport == 'stdio' else ': '}{rendered(word, _named)}"


def rendered(word: LaunchWord, reference: Callable[[SecretWord], str]) -> str:
    """Return a word as a text, its secrets replaced by the results of `reference`."""
    return "".join(part if isinstance(part, str) else reference(part) for part in word)


def joined(parts: Iterable[str | SecretWord]) -> LaunchWord:
    """Return parts as a word, with neighbouring texts as one and without empty ones."""
    word: list[str | SecretWord] = []
    for part in parts:
        if part == "":
            continue
        last = word[-1] if word else None
        if isinstance(part, str) and isinstance(last, str):
            word[-1] = last + part
        else:
            word.append(part)
    return tuple(word) or ("",)


def literal(text: str, what: str) -> str:
    """Return a publisher's text that goes into a config as it is.

    A config replaces `${VAR}` and `${file:PATH}`: in the publisher's hand these would send variables and files of the
    user to wherever the server is.

    Raises:
        RegistryError: It holds such a reference, or a control character.
    """
    if _REFERENCE.search(text):
        raise RegistryError(
            f"{what} is {shown(text)!r}: a config would replace a part of it by a variable or a file of yours, "
            "which is not for a publisher to ask for"
        )
    if _CONTROL.search(text):
        raise RegistryError(f"{what} is {shown(text)!r}, which has a control character")
    return text


def _named(secret: SecretWord) -> str:
    return f"<{secret.name}>"


def _quoted(word: str) -> str:
    import shlex  # only for a person

    if re.fullmatch(r"[\w@%+=:,./<>~{}-]+", word):
        return word
    return shlex.quote(word)
