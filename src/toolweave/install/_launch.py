"""A server as it is started or reached, with its secrets as separate values: the source of a config's entry."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
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
        name: The name under which it is kept.
        description: The description for the user who is asked for it.
        value: The secret; None if it is asked for later, by the program that starts the server.
    """

    repr_exclude: ClassVar[frozenset[str]] = frozenset({"value"})

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
        headers: The headers of every request to it.
        notes: Remarks for the user who installs it.
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
        return _secrets_in((*self.args, *self.env.values(), self.url, *self.headers.values()))

    @property
    def secrets_in_arguments(self) -> tuple[str, ...]:
        """The names of the secrets that the server takes on its command line, where other programs can read them."""
        return tuple(secret.name for secret in _secrets_in(self.args))

    def lines(self) -> Iterator[str]:
        """Yield the command or the address, one fact a line, with secrets by their names alone."""
        if self.transport == "stdio":
            words = [self.command, *(rendered(word, _named) for word in self.args)]
            yield " ".join(map(_quoted, words))
        else:
            yield rendered(self.url, _named)
        for name, word in self.env.items():
            yield f"  {name}={rendered(word, _named)}"
        for name, word in self.headers.items():
            yield f"  {name}: {rendered(word, _named)}"


def _secrets_in(words: Iterable[LaunchWord]) -> tuple[SecretWord, ...]:
    """Return the secrets in words, one for each name."""
    found: dict[str, SecretWord] = {}
    for part in chain.from_iterable(words):
        if isinstance(part, SecretWord):
            found[part.name] = part
    return tuple(found.values())


def rendered(word: LaunchWord, reference: Callable[[SecretWord], str]) -> str:
    """Return a word as a text, its secrets replaced by the results of `reference`."""
    return "".join(part if isinstance(part, str) else reference(part) for part in word)


def joined(parts: Iterable[str | SecretWord]) -> LaunchWord:
    """Return parts as a word, with neighbouring texts as one and without empty ones."""
    # Texts are joined so that words compare by their text: ("a", "b") and ("ab",) are the same word.
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

    A config replaces `${VAR}` and `${file:PATH}`. In a publisher's text, these would send variables and files of the
    user to the publisher's server.

    Raises:
        RegistryError: It holds such a reference, or a control character.
    """
    if _REFERENCE.search(text):
        raise RegistryError(
            f"{what} is {shown(text)!r}: a config would replace a part of it by a variable or a file of yours, "
            "which a publisher must not request"
        )
    if _CONTROL.search(text):
        raise RegistryError(f"{what} is {shown(text)!r}, which has a control character")
    return text


def _named(secret: SecretWord) -> str:
    return f"<{secret.name}>"


def _quoted(word: str) -> str:
    import shlex  # only where a command is shown

    if re.fullmatch(r"[\w@%+=:,./<>~{}-]+", word):
        return word
    return shlex.quote(word)
