"""Prompts that are Markdown files: their frontmatter describes them, their text has placeholders.

Files are read when they are asked for, and from memory while they have not changed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from toolweave._value import Value
from toolweave.config._frontmatter import split_frontmatter
from toolweave.protocol.component_meta import VERSION, component_meta
from toolweave.protocol.server_features import Prompt, PromptArgument, definition, prompt_result_json
from toolweave.serve._offers.conversion import prompt_messages
from toolweave.serve._offers.folder import FileStamp, Folder, in_thread
from toolweave.serve._offers.prompts import PromptsChanged
from toolweave.serve._offers.string_handlers import check_given
from toolweave.serve._request import Json
from toolweave.tools._call import CallContext
from toolweave.tools._toolset import Unsubscribe

_log = logging.getLogger("toolweave.serve")

_SUFFIX = ".md"
_LARGEST = 1024 * 1024
_PLACEHOLDER = re.compile(r"(\\?)\{\{([^{}\n]*)\}\}")
_ARGUMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_FIELDS = ("name", "title", "description", "arguments", "tags")
_ARGUMENT_FIELDS = ("name", "description", "required", "default")


class PromptFile(Value, frozen=True, kw_only=True):
    """A prompt of a file.

    Attributes:
        prompt: Its definition.
        text: Its text, with placeholders.
        defaults: The values of arguments that are not given; `""` for an argument that is not among them.
    """

    prompt: Prompt
    text: str
    defaults: Mapping[str, str]

    def filled(self, given: Mapping[str, str]) -> str:
        """Return the text with the values of its arguments; a value is put in as it is, placeholders in it stay."""

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
        raise ValueError("it has no text behind its frontmatter")
    used = tuple(dict.fromkeys(found[2].strip() for found in _PLACEHOLDER.finditer(body) if not found[1]))
    listed = [_argument(entry) for entry in _arguments(fields, used)]
    names = [argument.name for argument, _ in listed]
    _check_names(names, used)
    tags = fields.get("tags")
    if not isinstance(tags, (list, type(None))):
        raise ValueError(f"its 'tags' are {tags!r}; a list of texts is expected")
    prompt = Prompt(
        name=_text(fields, "name") or name,
        title=_text(fields, "title"),
        description=_text(fields, "description") or "",
        arguments=tuple(argument for argument, _ in listed),
        meta=component_meta(None, tags=cast("list[str]", tags or [])),
    )
    defaults = {argument.name: default for argument, default in listed if default is not None}
    return PromptFile(prompt=prompt, text=body, defaults=defaults)


def _arguments(fields: Mapping[str, Any], used: Sequence[str]) -> Sequence[Any]:
    given = fields.get("arguments")
    if given is None:
        return used
    if not isinstance(given, list):
        raise ValueError("its 'arguments' are no list; write each as '- name: NAME' below 'arguments:'")
    return cast("list[Any]", given)


def _argument(entry: object) -> tuple[PromptArgument, str | None]:
    """Return an argument, and its value where it is not given."""
    fields: Mapping[str, Any] = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {"name": entry}
    name = fields.get("name")
    if not isinstance(name, str) or not _ARGUMENT.fullmatch(name):
        raise ValueError(f"{name!r} is no name of an argument: letters, digits, '_' and '-' are expected")
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


def _check_fields(fields: Mapping[str, Any], known: Sequence[str], what: str) -> None:
    unknown = next((name for name in fields if name not in known), None)
    if unknown is not None:
        raise ValueError(f"{what} has {unknown!r}, which means nothing here; it may have {', '.join(known)}")


def _check_names(names: Sequence[str], used: Sequence[str]) -> None:
    """Raise where the arguments and the placeholders are not the same."""
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"its argument {twice!r} is there twice")
    for name in used:
        if name not in names:
            raise ValueError(
                f"its text has {{{{{name}}}}}, which is no argument of it; write \\{{{{{name}}}}} for the text itself"
            )
    for name in names:
        if name not in used:
            raise ValueError(f"its argument {name!r} is nowhere in its text; write {{{{{name}}}}} where it goes")


def _text(fields: Mapping[str, Any], name: str, *, of: str = "its frontmatter") -> str | None:
    """Return a member that is a text, or None."""
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or (name == "name" and (not value.strip() or not value.isprintable())):
        raise ValueError(f"{name!r} of {of} is {value!r}; a text is expected, in quotes if it looks like another value")
    return value


class PromptFolder:
    """The prompts of the Markdown files below a directory; a `PromptSource`.

    Args:
        root: The directory, resolved.
        taken: Names that other prompts have.

    Attributes:
        problems: The files that are left out now, with the reasons.
    """

    def __init__(self, root: Path, *, taken: frozenset[str] = frozenset()) -> None:
        self.problems: tuple[str, ...] = ()
        self._folder = Folder(root)
        self._taken = taken
        self._files: dict[Path, tuple[FileStamp, PromptFile | str]] = {}  # a text is the reason why it is none
        self._prompts: Mapping[str, PromptFile] = {}
        self.found()

    @property
    def empty(self) -> bool:
        """Whether no file is there, not even one that is left out."""
        return not self._files

    # a `PromptSource`

    async def prompts(self) -> Sequence[Json]:
        """Return the definition of the prompt of each file, in the order of their paths."""
        return [definition(file.prompt) for file in (await in_thread(self.found)).values()]

    async def get(self, name: str, arguments: Mapping[str, Any], ctx: CallContext) -> Json | None:
        """Return the text of a file with its placeholders filled in; None when there is no such prompt."""
        file = (await in_thread(self.found)).get(name)
        if file is None or ctx.meta.get(VERSION) is not None:
            return None
        check_given(arguments, file.prompt.arguments, what=f"prompt {name!r}")
        return prompt_result_json(prompt_messages(file.filled(arguments)), file.prompt.description or None)

    def definition(self, name: str, version: str | None = None) -> Json | None:
        """Return the definition of a prompt as it was read last, or None."""
        file = self._prompts.get(name) if version is None else None
        if file is None:
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
            files[path] = known if known is not None and known[0] == stamp else (stamp, self._read(path))
            file = files[path][1]
            if isinstance(file, PromptFile) and (file.prompt.name in self._taken or file.prompt.name in prompts):
                file = f"there is a prompt {file.prompt.name!r} already"
            if isinstance(file, PromptFile):
                prompts[file.prompt.name] = file
            else:
                place = path.relative_to(self._folder.root.parent).as_posix()
                problems.append(f"prompt file {place!r} is left out: {file}")
        for problem in problems:
            if problem not in self.problems:
                _log.warning("%s", problem)
        self._files, self._prompts, self.problems = files, prompts, tuple(problems)
        return prompts

    def _paths(self) -> Iterator[tuple[Path, FileStamp]]:
        for path, about in self._folder.files():
            if path.suffix.lower() == _SUFFIX:
                yield path, FileStamp.of(about)

    def _read(self, path: Path) -> PromptFile | str:
        """Return the prompt of a file, or the reason why it is none."""
        name = "_".join(path.relative_to(self._folder.root).with_suffix("").parts)
        try:
            if path.stat().st_size > _LARGEST:
                return f"it is larger than {_LARGEST // 2**20} MiB"
            return read_prompt_file(path.read_bytes().decode(), name=name)
        except UnicodeDecodeError:
            return "it is no UTF-8"
        except OSError as exc:
            return f"it cannot be read: {exc.strerror}"
        except ValueError as exc:
            return str(exc)
