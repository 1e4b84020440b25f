"""A region of a snippet as a program of its own: the region, and what of its file it cannot run without.

Kept are the imports and definitions that the region uses, the statements around it (`async def main`, `async with`),
what those use in turn, and the line that starts it all. Pure: looks at the text alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeGuard, cast

__all__ = ["program"]

WIDTH = 120
PYTEST = ("pytestmark", "anyio_backend")
"""What an asynchronous test needs without naming it."""


def program(text: str, region: str) -> str:
    """Return a region of a file as a program that runs alone."""
    lines = text.splitlines()
    begin = next(at for at, line in enumerate(lines, 1) if line.strip() == f"# region {region}")
    end = next(at for at in range(begin, len(lines) + 1) if lines[at - 1].strip() == "# endregion")
    shown = [at for at in range(begin + 1, end) if lines[at - 1].strip()]
    return _Slice(ast.parse(text), lines, range(shown[0], shown[-1] + 1)).text()


class _Slice:
    """The lines of a file that one region needs."""

    def __init__(self, tree: ast.Module, lines: Sequence[str], region: range) -> None:
        self._lines = lines
        self._region = region
        self._kept = {at for at in region if lines[at - 1].strip()}
        self._imports: dict[str, tuple[ast.Import | ast.ImportFrom, ast.alias]] = {}
        self._used: set[str] = set()
        self._bodies: list[Sequence[ast.stmt]] = []
        self._seen: set[ast.AST] = set()
        for node in self._imported(tree):
            self._imports |= {(alias.asname or alias.name).split(".")[0]: (node, alias) for alias in node.names}
        self._need(self._enter(tree.body, region))
        self._start(tree)

    def text(self) -> str:
        """Return the program."""
        return "\n".join([*self._import_lines(), *self._code_lines()]).strip("\n") + "\n"

    def _imported(self, tree: ast.Module) -> Iterator[ast.Import | ast.ImportFrom]:
        for node in tree.body:
            if isinstance(node, ast.Import | ast.ImportFrom) and getattr(node, "module", "") != "__future__":
                yield node

    def _enter(self, body: Sequence[ast.stmt], region: range) -> list[ast.AST]:
        """Keep the statements around the region; return those in it."""
        self._bodies.append(body)
        for node in body:
            if _first(node) < region.start and (node.end_lineno or 0) >= region.stop - 1:
                self._seen.add(node)  # some of it is kept, so that nobody else needs to keep all of it
                inner = cast("list[ast.stmt]", getattr(node, "body", []))
                self._keep(range(_first(node), _first(inner[0])))
                for part in _headers(node):
                    self._need([part])
                after: Sequence[ast.stmt] = getattr(node, "finalbody", ())
                if after:
                    self._keep(range(after[0].lineno - 1, (after[-1].end_lineno or 0) + 1))
                inside = [*self._enter(inner, region), *after]
                for name in {one.id for part in _headers(node) for one in ast.walk(part) if _is_bound(one)}:
                    self._complete(name, inner)
                return inside
        return [node for node in body if region.start <= node.lineno < region.stop]

    def _keep(self, numbers: Iterable[int]) -> None:
        self._kept |= {at for at in numbers if not re.match(r"\s*(# (region|endregion)|$)", self._lines[at - 1])}

    def _need(self, nodes: Iterable[ast.AST]) -> None:
        """Keep what binds the names that nodes use, and what that uses."""
        for node in nodes:
            for name in _names(node):
                self._resolve(name)

    def _resolve(self, name: str) -> None:
        if name in self._imports:
            self._used.add(name)
            return
        for level, body in reversed(list(enumerate(self._bodies))):
            found = [node for node in body if name in _bound(node) and (level == 0 or self._is_before(node))]
            if not found:
                continue
            node = found[-1]
            if node not in self._seen:
                self._seen.add(node)
                self._keep(range(_first(node), (node.end_lineno or 0) + 1))
                self._need([node])
                self._complete(name, body)
            return

    def _complete(self, name: str, body: Sequence[ast.stmt]) -> None:
        """Keep what is done with a value outside of the region: `shop.resource(...)`, `@shop.tool`, `task.cancel()`."""
        for node in body:
            if node not in self._seen and node.lineno not in self._region and name in _addressed(node):
                self._seen.add(node)
                self._keep(range(_first(node), (node.end_lineno or 0) + 1))
                self._need([node])
                for bound in _bound(node):
                    self._complete(bound, body)

    def _is_before(self, node: ast.stmt) -> bool:
        return node.lineno < self._region.start

    def _start(self, tree: ast.Module) -> None:
        """Keep the statement that starts what is kept, such as `asyncio.run(main())`."""
        defined = {name for node in tree.body if node.lineno in self._kept for name in _bound(node)}
        for node in tree.body:
            starts = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
            if starts and "main" in defined and "main" in set(_names(node)):
                self._keep(range(node.lineno, (node.end_lineno or 0) + 1))
                self._need([node])

    def _import_lines(self) -> list[str]:
        """Return the imports that are used, in groups as in the file."""
        lines: list[str] = []
        last = 0
        nodes = sorted({node for node, _ in self._imports.values()}, key=lambda node: node.lineno)
        for node in nodes:
            aliases = [alias for name, (of, alias) in self._imports.items() if of is node and name in self._used]
            if not aliases:
                continue
            if last and any(not self._lines[at - 1].strip() for at in range(last, node.lineno)):
                lines.append("")
            last = node.lineno
            lines += _import_line(node, aliases)
        return lines

    def _code_lines(self) -> list[str]:
        """Return the kept lines with the blank ones that belong between them."""
        imports = {at for node, _ in self._imports.values() for at in range(node.lineno, (node.end_lineno or 0) + 1)}
        kept = sorted(self._kept - imports)
        outdent = min(len(self._lines[at - 1]) - len(self._lines[at - 1].lstrip()) for at in kept)
        result: list[str] = []
        last = 0
        in_definition = False
        for at in kept:
            line = self._lines[at - 1][outdent:]
            between = self._lines[last : at - 1] if last else [""]
            opens = bool(re.match(r"(@|(async )?def |class )", line))
            top = not line.startswith((" ", ")", "]", "}"))
            blank = any(not one.strip() for one in between)
            if top and (opens or in_definition) and (blank or not last):
                result += ["", ""]
            elif not last or (blank and not result[-1].endswith((":", "(", "[", "{")) and line.strip() != "finally:"):
                result.append("")
            if top:
                in_definition = opens
            result.append(line)
            last = at
        return result


def _first(node: ast.stmt) -> int:
    """Return the first line of a statement, its decorators included."""
    decorators: Sequence[ast.expr] = getattr(node, "decorator_list", ())
    return min([node.lineno, *(one.lineno for one in decorators)])


def _headers(node: ast.stmt) -> Iterator[ast.AST]:
    """Yield what stands before the body of a compound statement."""
    for field, value in ast.iter_fields(node):
        if field not in {"body", "orelse", "finalbody", "handlers"}:
            parts = cast("Sequence[object]", value if isinstance(value, list) else [value])
            yield from (one for one in parts if isinstance(one, ast.AST))


def _names(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node uses; for a test also those of its fixtures."""
    for one in ast.walk(node):
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load):
            yield one.id
        elif isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and one.name.startswith("test_"):
            yield from (argument.arg for argument in one.args.args)
            yield from PYTEST


def _bound(node: ast.stmt) -> set[str]:
    """Return the names that a statement binds."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Assign() | ast.AnnAssign():
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            return {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}
        case _:
            return set()


def _is_bound(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _addressed(node: ast.stmt) -> set[str]:
    """Return the names of values of which a statement calls a method, or which decorate it."""
    calls: Sequence[ast.expr] = getattr(node, "decorator_list", ())
    if isinstance(node, ast.Expr | ast.Assign):
        calls = [node.value]
    targets = [call.func if isinstance(call, ast.Call) else call for call in calls]
    return {one.value.id for one in targets if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name)}


def _import_line(node: ast.Import | ast.ImportFrom, aliases: Sequence[ast.alias]) -> list[str]:
    names = [f"{alias.name} as {alias.asname}" if alias.asname else alias.name for alias in aliases]
    if isinstance(node, ast.Import):
        return [f"import {name}" for name in names]
    line = f"from {node.module} import {', '.join(names)}"
    return [line] if len(line) <= WIDTH else [f"from {node.module} import (", *(f"    {one}," for one in names), ")"]
