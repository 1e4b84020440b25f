"""Every message of an error that the package can raise, read from its source, and the page that has the cure.

A message is the text that a class of errors is made with, directly or through a function that passes one of its
parameters on as that text. Values in it become `...`. Texts that a function returns for a message are messages too, and
so are lines of `problems`, which are read beside a result, and what a function returns whose name promises a hint.
"""

from __future__ import annotations

import ast
import builtins
import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import NamedTuple, TypeAlias, TypeGuard

from tests.architecture.source import Module, modules
from tests.docs.cures import CODES, CURES, Cure
from toolweave import errors

__all__ = ["Message", "all_messages", "cure_of", "is_in", "message_tables", "messages_of"]

LEFT_OUT = ("testing.servers", "cli.demo", "components.catalog")
"""Programs for tests, for the demo, and for projects to copy."""
HINTS = ("connect._hints",)
"""Modules whose tables of texts are the ends of messages."""
FAULT = "HttpFault"
"""A value with the text of an error of HTTP, which becomes one of several classes."""
LINES = re.compile(r"_?(?:problems|warnings|notes|missing|losses)")
"""The names of lists whose lines are read by a user."""
ADDERS = {"append", "add", "extend"}
NOTERS = {"note", "_note", "_report"}
"""Methods that keep or report their last argument as such a line."""
PROBLEMS = {"Problem": ("message", 1), "OperationProblem": ("reason", 2)}
"""Values that are a line of such a list: the name and the place of the text."""
ADVISERS = re.compile(r"_?(?:\w+_)?(?:hint|problem|reason|note|advice|cure)s?(?:_of|_for)?")
"""The names of functions that return a line for a user."""
OF_LINES = ("_warnings", "problems", "_hints")
"""The ends of the names of modules whose functions return lines for a user."""
MIN_WORDS = 3
MAX_VARIANTS = 6
GAP = "..."
INTRODUCTION = """\
Search this page for the words of your error. `...` stands for the parts that differ. The text above a table leads to
the cure. *error* is the class to catch, see [errors](errors.md). Without one, the text is a part of an error, a hint or
a line of `problems`.

## Codes of a sign-in

An authorization server sends one of these. See [When it fails](sign-in.md#when-it-fails).

| code | meaning | what to do |
|---|---|---|
"""
_PATTERN = re.compile(r"\(\?[:iP]|\[\^|\.[+*]|\|\^")
"""A part of a regular expression, which no message has."""
_WORD = re.compile(r"[A-Za-z]{2,}")
_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_Scope: TypeAlias = Mapping[str, list[ast.expr]]


class Message(NamedTuple):
    """One message.

    Attributes:
        text: Its words, with `...` for values.
        error: The class of the error.
        module: The module that makes it, without the name of the package.
    """

    text: str
    error: str
    module: str


class _Maker(NamedTuple):
    """A function that makes or raises an error with a text it is given: the places of that parameter, and the class."""

    names: frozenset[str]
    places: frozenset[int]
    error: str


@cache
def all_messages() -> tuple[Message, ...]:
    """Return all messages, sorted by their text."""
    read = _Reader([one for one in modules() if not _short(one).startswith(LEFT_OUT)])
    return tuple(sorted(set(read.messages()), key=lambda one: (one.text.lstrip(". '\"").lower(), one)))


def messages_of(texts: Iterable[str], *, error: str, module: str) -> Iterator[Message]:
    """Yield the messages that are made of these texts; one of a word or two says nothing."""
    for text in texts:
        if _PATTERN.search(text):
            continue
        plain = " ".join(re.sub(r"(?:\.\.\.\s*){2,}", GAP + " ", text).split())
        if len([one for one in plain.replace(GAP, " ").split() if _WORD.search(one)]) >= MIN_WORDS:
            yield Message(plain, error, module)


def cure_of(module: str) -> Cure:
    """Return the cure for the messages of a module: the one with the longest prefix of its name."""
    found = [(len(prefix), cure) for cure in CURES for prefix in cure.modules if is_in(module, prefix)]
    assert found, f"tests/docs/cures.py names no page for the messages of {module}"
    return max(found, key=lambda one: one[0])[1]


def message_tables() -> Iterator[str]:
    """Yield the codes of sign-ins, and a section for each cure: what went wrong, where to read on, and the messages."""
    yield INTRODUCTION
    yield from (f"| `{name}` | {one.meaning} | {one.cure} |\n" for name, one in CODES.items())
    yield "\n"
    grouped: dict[str, dict[str, None]] = defaultdict(dict)
    classes: dict[str, set[str]] = defaultdict(set)
    for message in all_messages():
        grouped[cure_of(message.module).title][message.text] = None
        classes[message.text].add(_shown_class(message.error))
    for cure in CURES:
        yield f"## {cure.title}\n\n{cure.text}\n\n| message | error |\n|---|---|\n"
        for text in grouped[cure.title]:
            yield f"| {_code(text)} | {', '.join(sorted(classes[text] - {''}))} |\n"
        yield "\n"


class _Reader:
    """Reads the modules twice: for functions that make errors, then for texts."""

    def __init__(self, read: list[Module]) -> None:
        self._modules = read
        self._errors = _error_classes(read)
        self._text_places = _text_places(read)
        self._makers: dict[str, list[_Maker]] = defaultdict(list)
        self._texts: dict[str, list[tuple[Module, _Function]]] = defaultdict(list)
        self._owners = {
            inner: node.name
            for module in read
            for node in ast.walk(module.tree)
            if isinstance(node, ast.ClassDef)
            for inner in node.body
        }
        self._calls = [
            (module, function, list(_own_calls(function))) for module in read for function in _functions(module.tree)
        ]
        for module, function, _ in self._calls:
            if _returns_text(function):
                self._texts[function.name].append((module, function))
        while self._find_makers():
            pass

    def messages(self) -> Iterator[Message]:
        for module in self._modules:
            if _short(module) in HINTS:
                yield from messages_of(_strings_of(module.tree), error="", module=_short(module))
        for module, function, calls in self._calls:
            found = [one for call in calls for one in self._message_arguments(call, self._owners.get(function, ""))]
            found += [(one, "") for one in _lines(module, function)]
            if not found:
                continue
            scope = _scope(module, function)
            for expr, error in found:
                yield from messages_of(_variants(expr, scope), error=error, module=_short(module))
                yield from self._texts_within(expr, scope, error)

    def _texts_within(self, expr: ast.expr, scope: _Scope, error: str, depth: int = 0) -> Iterator[Message]:
        """Yield what functions return that are called in a message, or for a name in it."""
        named = [value for node in ast.walk(expr) if isinstance(node, ast.Name) for value in scope.get(node.id, ())]
        calls = (node for one in (expr, *named) for node in ast.walk(one) if isinstance(node, ast.Call))
        for call in calls:
            found = self._texts.get(_called(call), [])
            if len(found) != 1 or depth > 1:  # a name that several functions have leads nowhere certain
                continue
            ((module, function),) = found
            inner = _scope(module, function)
            for node in ast.walk(function):
                if isinstance(node, ast.Return) and node.value is not None:
                    yield from messages_of(_variants(node.value, inner), error=error, module=_short(module))
                    yield from self._texts_within(node.value, inner, error, depth + 1)

    def _message_arguments(self, call: ast.Call, owner: str) -> Iterator[tuple[ast.expr, str]]:
        """Yield the arguments of a call that are the text of an error, with its class; `owner` is the class around."""
        name = _called(call)
        if ast.unparse(call.func) == "super().__init__" and owner in self._errors and call.args:
            yield call.args[0], owner
        yield from ((one, "") for one in _line_arguments(call))
        if name == FAULT:
            yield from ((one.value, "ConnectError") for one in call.keywords if one.arg == "text")
        if name in self._errors:
            at = self._text_places.get(name, 0)
            if len(call.args) > at and not isinstance(call.args[at], ast.Starred):
                yield call.args[at], name
            yield from ((one.value, name) for one in call.keywords if one.arg in {"message", "hint"})
        for maker in self._makers.get(name, ()):
            if _is_log(call):
                continue
            yield from ((one, maker.error) for at, one in enumerate(call.args) if at in maker.places)
            yield from ((one.value, maker.error) for one in call.keywords if one.arg in maker.names)

    def _find_makers(self) -> bool:
        """Find functions that pass a parameter on as the text of an error; return whether there are new ones."""
        before = sum(map(len, self._makers.values()))
        for _, function, calls in self._calls:
            names, every = _parameters(function)
            found = [one for call in calls for one in self._message_arguments(call, self._owners.get(function, ""))]
            for expr, error in found:
                passed = frozenset(_plain_names(expr) & every)
                if not passed or any(one.names >= passed for one in self._makers[function.name]):
                    continue
                places = frozenset(at for at, one in enumerate(names) if one in passed)
                self._makers[function.name].append(_Maker(passed, places, error))
        return sum(map(len, self._makers.values())) > before


def _scope(module: Module, function: _Function) -> _Scope:
    """Return what each name is given in a function, or else in its module."""
    return {**_assigned(module.tree.body), **_assigned(ast.walk(function))}


def _parameters(function: _Function) -> tuple[list[str], set[str]]:
    """Return the parameters that a call may give by place, without `self`, and all of them."""
    arguments = function.args
    names = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
    if names[:1] in (["self"], ["cls"]):
        del names[0]
    return names, {*names, *(one.arg for one in arguments.kwonlyargs)}


def _variants(expr: ast.expr, scope: _Scope, depth: int = 0) -> list[str]:
    """Return the texts that an expression may be."""
    match expr:
        case ast.Constant(value=str() as text):
            return [text]
        case ast.JoinedStr(values=parts):
            return _joined([_part(one, scope, depth) for one in parts])
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _joined([_variants(left, scope, depth), _variants(right, scope, depth)])
        case ast.BinOp(left=ast.Constant(value=str() as text), op=ast.Mod()):
            return [re.sub(r"%[-.\d]*[a-z]", GAP, text)]
        case ast.IfExp(body=body, orelse=orelse):
            return [*_variants(body, scope, depth), *_variants(orelse, scope, depth)]
        case ast.BoolOp(op=ast.Or(), values=values):
            return [text for one in values for text in _variants(one, scope, depth)]
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str() as text), attr="format")):
            return [re.sub(r"\{[^{}]*\}", GAP, text)]
        case ast.Name(id=name) if depth < 3 and name in scope:
            return [text for one in scope[name] for text in _variants(one, scope, depth + 1)]
        case _:
            return [GAP]


def _part(part: ast.expr, scope: _Scope, depth: int) -> list[str]:
    """Return the texts of one part of an f-string."""
    if not isinstance(part, ast.FormattedValue):
        return _variants(part, scope, depth)
    if part.conversion == ord("r"):
        return [GAP]
    return list(dict.fromkeys(_variants(part.value, scope, depth + 1)))


def _joined(parts: list[list[str]]) -> list[str]:
    """Return each way to join one text of each part.

    A part that has too many becomes a gap, and its texts follow alone.
    """
    number = 1
    alone: list[str] = []
    for at, texts in enumerate(parts):
        if number * len(texts) > MAX_VARIANTS:
            alone += [f"{GAP}{text}{GAP}" for text in texts]
            parts[at] = [GAP]
        number *= len(parts[at])
    return [*("".join(one) for one in itertools.product(*parts)), *alone]


def _plain_names(expr: ast.expr) -> set[str]:
    """Return the names whose text is in an expression as it is, not as the argument of a function."""
    match expr:
        case ast.Name(id=name):
            return {name}
        case ast.JoinedStr(values=values):
            inner = [one.value for one in values if isinstance(one, ast.FormattedValue) and one.conversion != ord("r")]
            return {one.id for one in inner if isinstance(one, ast.Name)}
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _plain_names(left) | _plain_names(right)
        case _:
            return set()


def _assigned(nodes: Iterable[ast.AST]) -> dict[str, list[ast.expr]]:
    """Return what each name is given in these nodes."""
    found: dict[str, list[ast.expr]] = defaultdict(list)
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found[name].append(value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                found[name].append(value)
            case ast.AugAssign(target=ast.Name(id=name), value=value):
                found[name].append(ast.BinOp(ast.Constant(GAP), ast.Add(), value))
            case _:
                pass
    return found


def _error_classes(read: list[Module]) -> set[str]:
    """Return the names of all classes of exceptions, the builtin ones and the package's."""
    found = {name for name, one in vars(builtins).items() if isinstance(one, type) and issubclass(one, Exception)}
    classes = [node for module in read for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef)]
    while True:
        new = {one.name for one in classes if any(ast.unparse(base) in found for base in one.bases)}
        if new <= found:
            return found
        found |= new


def _text_places(read: list[Module]) -> dict[str, int]:
    """Return at which place the classes of exceptions take their text, where their own `__init__` passes it on."""
    found: dict[str, int] = {}
    classes = (node for module in read for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef))
    for one in classes:
        for function in one.body:
            if isinstance(function, ast.FunctionDef) and function.name == "__init__":
                names, _ = _parameters(function)
                passed = [call.args[0] for call in _own_calls(function) if _passes_text(call)]
                found.update((one.name, names.index(text.id)) for text in passed if _is_named(text, names))
    return found


def _passes_text(call: ast.Call) -> bool:
    return ast.unparse(call.func) == "super().__init__" and len(call.args) > 0


def _is_named(text: ast.expr, names: list[str]) -> TypeGuard[ast.Name]:
    return isinstance(text, ast.Name) and text.id in names


def _functions(tree: ast.Module) -> Iterator[_Function]:
    return (node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))


def _own_calls(function: _Function) -> Iterator[ast.Call]:
    """Yield the calls of a function, those of the functions within it left to them."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Call):
            yield node
        waiting += [
            one for one in ast.iter_child_nodes(node) if not isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))
        ]


def _line_arguments(call: ast.Call) -> Iterator[ast.expr]:
    """Yield the arguments of a call that are lines for a user."""
    name = _called(call)
    if isinstance(call.func, ast.Attribute):
        owner = _last_name(call.func.value)
        if name in ADDERS and (owner == "self" or LINES.fullmatch(owner)):
            yield from (one for argument in call.args for one in _elements(argument))
        if name in NOTERS:
            yield from (one for argument in call.args[-1:] for one in _elements(argument))
    if name in PROBLEMS:
        word, at = PROBLEMS[name]
        yield from call.args[at : at + 1]
        yield from (one.value for one in call.keywords if one.arg == word)


def _lines(module: Module, function: _Function) -> Iterator[ast.expr]:
    """Yield what a function adds to a list of lines for a user, and what it returns if its name promises a line."""
    advises = ADVISERS.fullmatch(function.name) is not None or module.name.endswith(OF_LINES)
    for node in ast.walk(function):
        match node:
            case ast.AugAssign(target=target, value=value) if LINES.fullmatch(_last_name(target)):
                yield from _elements(value)
            case ast.Assign(targets=[target], value=value) if LINES.fullmatch(_last_name(target)):
                yield from _elements(value)
            case ast.keyword(arg=str() as name, value=value) if LINES.fullmatch(name):
                yield from _elements(value)
            case ast.Return(value=ast.expr() as value) | ast.Yield(value=ast.expr() as value) if advises:
                yield from _elements(value) or [value]
            case _:
                pass


def _elements(expr: ast.expr) -> list[ast.expr]:
    """Return the texts in a list, a tuple or a comprehension, or the expression if it is a text itself."""
    match expr:
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return [one for part in parts for one in _elements(part)]
        case ast.ListComp(elt=part) | ast.GeneratorExp(elt=part):
            return _elements(part)
        case ast.IfExp(body=body, orelse=orelse):
            return [*_elements(body), *_elements(orelse)]
        case ast.Constant(value=str()) | ast.JoinedStr() | ast.BinOp():
            return [expr]
        case _:
            return []


def _last_name(expr: ast.expr) -> str:
    return ast.unparse(expr).rpartition(".")[2]


def _strings_of(tree: ast.Module) -> Iterator[str]:
    """Yield the texts of the tables of a module that read like a sentence; patterns are none."""
    for node in tree.body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            for one in ast.walk(node):
                text = one.value if isinstance(one, ast.Constant) else None
                if isinstance(text, str) and re.match(r"[a-z][\w']* ", text):
                    yield re.sub(r"\{\d(?:!r)?\}", GAP, text)


def _returns_text(function: _Function) -> bool:
    return function.returns is not None and re.fullmatch(r"str( \| None)?", ast.unparse(function.returns)) is not None


def _called(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def _is_log(call: ast.Call) -> bool:
    owner = ast.unparse(call.func.value).lower() if isinstance(call.func, ast.Attribute) else ""
    return re.search(r"log|span", owner) is not None


def _short(module: Module) -> str:
    return module.name.partition(".")[2]


def is_in(module: str, prefix: str) -> bool:
    """Whether a module is the one with this name, in it, or one whose name begins so."""
    return module == prefix or module.startswith((f"{prefix}.", f"{prefix}_"))


def _shown_class(name: str) -> str:
    """Return the class that a user can catch: a public one or Python's; else the error that it becomes is open."""
    public = hasattr(errors, name) or hasattr(builtins, name)
    return f"`{name}`" if public else ""


def _code(text: str) -> str:
    """Return a text as code in a cell of a table."""
    fence = "``" if "`" in text else "`"
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{space}{text}{space}{fence}".replace("|", "\\|")
