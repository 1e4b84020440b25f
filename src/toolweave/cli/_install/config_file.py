"""The file that an entry is written into: a config of Toolweave's or of an editor, JSON or TOML, edited as text."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolweave._json_types import Json, JsonObject, as_object, object_or_empty
from toolweave.cli._exit_codes import CommandError

if TYPE_CHECKING:
    from toolweave.install import ClientFormat

_JSON = (".json", ".jsonc", ".json5", ".code-workspace")


@dataclass(frozen=True, slots=True, kw_only=True)
class EditedConfig:
    """A config file as it is and as it would be.

    Attributes:
        path: The file; a link was followed, so that it stays one.
        text: Its text; empty for a new file.
        new_text: What would be in it.
        encoding: In which it is read and written.
        section: The path of the object that holds the servers.
        exists: Whether it has a server of the name already.
        there: The entry of that server; None for a new one.
    """

    path: Path
    text: str
    new_text: str
    encoding: str
    section: tuple[str, ...]
    exists: bool = False
    there: Any = None

    @property
    def changed(self) -> bool:
        """Whether there is anything to write."""
        return self.text != self.new_text

    def difference(self) -> Iterator[str]:
        """Yield the lines of a diff; values that were there before are masked, as they may be secrets."""
        from toolweave.config._documents import without_values  # imports are late: not every command reads configs

        known = set(map(_bare, self.text.splitlines()))
        lines = difflib.unified_diff(
            self.text.splitlines(), self.new_text.splitlines(), str(self.path), str(self.path), lineterm="", n=2
        )
        for line in lines:
            if line.startswith(("---", "+++", "@@")) or _bare(line[1:]) not in known:
                yield line
            else:
                yield line[0] + without_values(line[1:])

    def check_unchanged(self) -> None:
        """Check that the file is as it was read.

        Raises:
            CommandError: It was changed meanwhile.
        """
        from toolweave.cli._serve.editor_config import read_text  # late, as above

        if read_text(self.path)[0] != self.text:
            raise CommandError(f"{self.path} was changed meanwhile; nothing was written", hint="try again")

    def write(self) -> Path | None:
        """Write the file as a whole or not at all, and return the copy of the one that was there, if there was.

        Raises:
            CommandError: It cannot be written; it is unchanged then.
        """
        from toolweave.cli._serve.editor_config import backed_up, replace_file  # late, as above

        # The copy first: if the disk is full, the original is untouched and nothing was lost.
        try:
            backup = backed_up(self.path)
            replace_file(self.path, self.new_text.encode(self.encoding))
        except OSError as error:
            raise CommandError(f"cannot write {str(self.path)!r}: {error.strerror or error}") from None
        return backup


def format_named(client: str | None) -> ClientFormat:
    """Return the form of a client's entries, or that of Toolweave's own."""
    from toolweave.install import CLIENT_FORMATS, OWN_FORMAT  # late, as above

    if client is None:
        return OWN_FORMAT
    return CLIENT_FORMATS[client]


def file_of(form: ClientFormat) -> Path:
    """Return the file of a client's servers, or of Toolweave's own in this directory, whether it exists or not."""
    from toolweave.config import editor_config_files  # late, as above

    if not form.kind:
        return Path("mcp.json").absolute()
    paths = [file.path for file in editor_config_files() if file.kind == form.kind]
    for path in paths:  # `opencode.jsonc` if `opencode.json` does not exist
        if path.stem == paths[0].stem and path.is_file():
            return path
    return paths[0]


def open_config(form: ClientFormat, path: Path | None, name: str) -> EditedConfig:
    """Read the file that a server of a name is to be written into, a client's own by default.

    Raises:
        CommandError: It cannot be read, or is of a kind that is not edited.
    """
    from toolweave.cli._serve.editor_config import BY_HAND, read_text  # late, as above

    file = (file_of(form) if path is None else path.absolute()).resolve()
    if file.suffix.lower() not in (*_JSON, ".toml"):
        raise CommandError(f"{file}: only JSON and TOML are edited", hint=BY_HAND)
    text, encoding = read_text(file)
    value = _read(text, file)
    section = _section(form, value, file)
    servers = object_or_empty(_at(value, section))
    return EditedConfig(
        path=file,
        text=text,
        new_text=text,
        encoding=encoding,
        section=section,
        exists=name in servers,
        there=servers.get(name),
    )


def edited(config: EditedConfig, name: str, entry: JsonObject, inputs: Sequence[JsonObject] = ()) -> EditedConfig:
    """Return the file with an entry, and with the definitions of the values that its client asks for.

    Raises:
        CommandError: Its text cannot be edited safely.
    """
    from dataclasses import replace  # late, as above

    from toolweave.cli._install.toml_text import with_table
    from toolweave.cli._serve.editor_config import with_item, with_member

    path = (*config.section, name)
    source = str(config.path)
    if config.path.suffix.lower() == ".toml":
        return replace(config, new_text=with_table(config.text, path, entry, source))
    text = with_member(config.text, path, entry, source)
    for item in inputs:
        text = with_item(text, "inputs", item, source)
    return replace(config, new_text=text)


def _read(text: str, file: Path) -> Json:
    from toolweave.cli._install.toml_text import read_toml  # late, as above
    from toolweave.cli._serve.editor_config import read_object

    if file.suffix.lower() == ".toml":
        return read_toml(text, str(file))
    return read_object(text, str(file))


def _section(form: ClientFormat, value: JsonObject, file: Path) -> tuple[str, ...]:
    """Return where the servers of a file are: for our own, where some are already."""
    from toolweave.config._locate import SECTIONS  # late, as above

    if form.kind:
        return form.section
    for path in SECTIONS:
        # other programs have other things under these names
        if path in (("mcp",), ("extensions",)):
            continue
        if as_object(_at(value, path)) is not None:
            return tuple(map(str, path))
    if file.name == "pyproject.toml":
        return ("tool", "toolweave", "mcpServers")
    return form.section


def _at(value: object, path: Sequence[str | int]) -> object:
    """Return the value at a path; None if it is not there."""
    for key in path:
        value = object_or_empty(value).get(str(key))
    return value


def _bare(line: str) -> str:
    return line.strip().rstrip(",")
