"""Prompts that are Markdown files: their frontmatter describes them, their text has placeholders.

Files are read when they are requested, and cached while they have not changed.
"""

# The cache of a file is compared by the stamp of the file (times and size), and filled again as a whole at each
# request, so a file that was deleted leaves no entry. Several threads may fill it at once: each makes new mappings and
# assigns them at the end, so no reader sees half of one.

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from toolweave._json_types import JsonObject, as_array, as_object
from toolweave._value import Value
from toolweave.config._frontmatter import split_frontmatter
from toolweave.protocol.component_meta import VERSION, component_meta
from toolweave.protocol.server_features import Prompt, PromptArgument, definition, prompt_result_json
from toolweave.serve._offers.conversion import prompt_messages
from toolweave.serve._offers.folder import FileStamp, Folder, in_thread
from toolweave.serve._offers.prompts import PromptsChanged
from toolweave.serve._offers.string_handlers import texts_given
from toolweave.serve.request import Json
from toolweave.tools import CallContext, Unsubscribe

_log = logging.getLogger("toolweave.serve")

_SUFFIX = ".md"
_MAX_BYTES = 1024 * 1024
_PLACEHOLDER = re.compile(r"(\\?)\{\{([^{}\n]*)\}\}")
_ARGUMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_FIELDS = ("name", "title", "description", "arguments", "tags")
_ARGUMENT_FIELDS = ("name", "description", "required", "default")


class PromptFile(Value, frozen=True, kw_only=True):
    """A prompt of a file.

    Attributes:
        prompt: Its definition.
        text: Its text, with placeholders.
        defaults: The values of arguments that are not given; all others are `""`.
    """

    prompt: Prompt
    text: str
    defaults: Mapping[str, str]

    def filled(self, given: Mapping[str, str]) -> str:
        """Return the text with the values of its arguments; placeholders in a value are not replaced."""

        def value(found: re.Match[str]) -> str:
            name = found[2].strip()
            if found[1]:
                return found[0][1:]
            return given.get(name, self.defaults.get(name, ""))

        return _PLACEHOLDER.sub(value, self.text)


def read_prompt_file(text: str, *, name: str) -> PromptFile:
    r"""Return the prompt that a Markdown file has.

    The frontmatter has `name`, `title`, `description`, `tags` and `arguments`, all optional: a list of names, or of
    objects with `name`, `description`, `required` and `default`. Without it the placeholders are the arguments, and
    required. `{{name}}` is a placeholder, `\{{name}}` the text itself.

    Args:
        text: The whole file.
        name: The name of a prompt whose frontmatter has none.

    Raises:
        ValueError: It has no frontmatter, or something in it is wrong; the text names it.
    """
    fields, body = split_frontmatter(text)
    _check_fields(fields, _FIELDS, "its frontmatter")
    body = body.strip("\r\n")
    if not body.strip():
        raise ValueError("it has no text after its frontmatter")
    used = _placeholders(body)
    arguments: list[PromptArgument] = []
    defaults: dict[str, str] = {}
    for entry in _arguments(fields, used):
        argument, default = _argument(entry)
        arguments.append(argument)
        if default is not None:
            defaults[argument.name] = default
    _check_names([argument.name for argument in arguments], used)
    tags = as_array(fields.get("tags", []))
    if tags is None and fields["tags"] is not None:
        raise ValueError(f"its 'tags' are {fields['tags']!r}; a list of texts is expected")
    prompt = Prompt(
        name=_text(fields, "name") or name,
        title=_text(fields, "title"),
        description=_text(fields, "description") or "",
        arguments=tuple(arguments),
        meta=component_meta(None, tags=tags or []),
    )
    return PromptFile(prompt=prompt, text=body, defaults=defaults)


def _placeholders(body: str) -> tuple[str, ...]:
    """Return the names in a text's placeholders, each once."""
    found: dict[str, None] = {}
    for match in _PLACEHOLDER.finditer(body):
        if not match[1]:
            found[match[2].strip()] = None
    return tuple(found)


def _arguments(fields: JsonObject, used: Sequence[str]) -> Sequence[Any]:
    if fields.get("arguments") is None:
        return used
    given = as_array(fields["arguments"])
    if given is None:
        raise ValueError("its 'arguments' are not a list; write each as '- name: NAME' below 'arguments:'")
    return given


def _argument(entry: object) -> tuple[PromptArgument, str | None]:
    """Return an argument, and its default if it has one."""
    fields = as_object(entry)
    if fields is None:
        fields = {"name": entry}
    name = fields.get("name")
    if not isinstance(name, str) or not _ARGUMENT.fullmatch(name):
        raise ValueError(f"{name!r} is not the name of an argument: letters, digits, '_' and '-' are expected")
    what = f"its argument {name!r}"
    _check_fields(fields, _ARGUMENT_FIELDS, what)
    description = _text(fields, "description", of=what)
    default = _text(fields, "default", of=what)
    required = fields.get("required", default is None)
    if not isinstance(required, bool):
        raise ValueError(f"'required' of {what} is {required!r}; true or false is expected")
    if required and default is not None:
        raise ValueError(f"{what} is required, so that its default is never used; leave one of them out")
    return PromptArgument(name=name, description=description or "", required=required), default


def _check_fields(fields: JsonObject, known: Sequence[str], what: str) -> None:
    for name in fields:
        if name not in known:
            raise ValueError(f"{what} has {name!r}, which is unknown; it may have {', '.join(known)}")


def _check_names(names: Sequence[str], used: Sequence[str]) -> None:
    """Check that the arguments and the placeholders are the same.

    Raises:
        ValueError: One is missing on either side, or an argument occurs twice.
    """
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"its argument {name!r} is there twice")
    for name in used:
        if name not in names:
            raise ValueError(
                f"its text has {{{{{name}}}}}, which is not an argument; write \\{{{{{name}}}}} for the text itself"
            )
    for name in names:
        if name not in used:
            raise ValueError(f"its argument {name!r} is nowhere in its text; write {{{{{name}}}}} where it goes")


def _text(fields: JsonObject, name: str, *, of: str = "its frontmatter") -> str | None:
    """Return a member that is a text, or None."""
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or (name == "name" and not _is_name(value)):
        raise ValueError(f"{name!r} of {of} is {value!r}; a text is expected, in quotes if it looks like another value")
    return value


def _is_name(text: str) -> bool:
    return text.isprintable() and bool(text.strip())


class PromptFolder:
    """The prompts of the Markdown files below a directory; a `PromptSource`.

    Args:
        root: The directory, resolved.
        taken: Names that other prompts have.

    Attributes:
        problems: The files that are not offered now, with the reasons.
    """

    def __init__(self, root: Path, *, taken: frozenset[str] = frozenset()) -> None:
        self.problems: tuple[str, ...] = ()
        self._folder = Folder(root)
        self._taken = taken
        # a text is the reason why a file is not a prompt
        self._files: dict[Path, tuple[FileStamp, PromptFile | str]] = {}
        self._prompts: Mapping[str, PromptFile] = {}
        self.found()

    @property
    def empty(self) -> bool:
        """Whether there are no files, not even files with a fault."""
        return not self._files

    # a `PromptSource`

    async def prompts(self) -> Sequence[Json]:
        """Return the definition of the prompt of each file, in the order of their paths."""
        return [definition(file.prompt) for file in (await in_thread(self.found)).values()]

    async def get(self, name: str, arguments: JsonObject, ctx: CallContext) -> Json | None:
        """Return the text of a file with its placeholders replaced, or None if no file has the prompt."""
        file = (await in_thread(self.found)).get(name)
        if file is None or ctx.meta.get(VERSION) is not None:
            return None
        texts = texts_given(arguments, file.prompt.arguments, what=f"prompt {name!r}")
        return prompt_result_json(prompt_messages(file.filled(texts)), file.prompt.description or None)

    def definition(self, name: str, version: str | None = None) -> Json | None:
        """Return the definition of a prompt as it was read last, or None."""
        file = self._prompts.get(name)
        if file is None or version is not None:
            return None
        return definition(file.prompt)

    def scopes(self, name: str, version: str | None = None) -> tuple[str, ...]:
        """Return nothing: prompts of files need no scopes."""
        return ()

    def subscribe(self, listener: Callable[[PromptsChanged], None]) -> Unsubscribe:
        """Do nothing: files are not watched."""
        return lambda: None

    # the files on disk

    def found(self) -> Mapping[str, PromptFile]:
        """Return the prompts that are offered now, by name; the faults of other files are in `problems`."""
        prompts = dict[str, PromptFile]()
        problems = list[str]()
        files: dict[Path, tuple[FileStamp, PromptFile | str]] = {}
        for path, stamp in self._paths():
            known = self._files.get(path)
            if known is None or known[0] != stamp:
                known = stamp, self._read(path)
            files[path] = known
            file = known[1]
            if isinstance(file, PromptFile):
                name = file.prompt.name
                if name not in self._taken and name not in prompts:
                    prompts[name] = file
                    continue
                file = f"there is a prompt {name!r} already"
            place = path.relative_to(self._folder.root.parent).as_posix()
            problems.append(f"prompt file {place!r} is left out: {file}")
        for problem in problems:
            if problem not in self.problems:
                _log.warning("%s", problem)
        self._files = files
        self._prompts = prompts
        self.problems = tuple(problems)
        return prompts

    def _paths(self) -> Iterator[tuple[Path, FileStamp]]:
        for path, about in self._folder.files():
            if path.suffix.lower() == _SUFFIX:
                yield path, FileStamp.of(about)

    def _read(self, path: Path) -> PromptFile | str:
        """Return the prompt of a file, or the reason why it is not a prompt."""
        name = "_".join(path.relative_to(self._folder.root).with_suffix("").parts)
        try:
            if path.stat().st_size > _MAX_BYTES:
                return f"it is larger than {_MAX_BYTES // 2**20} MiB"
            return read_prompt_file(path.read_bytes().decode(), name=name)
        except UnicodeDecodeError:
            return "it is not UTF-8"
        except OSError as exc:
            return f"it cannot be read: {exc.strerror}"
        except ValueError as exc:
            return str(exc)
