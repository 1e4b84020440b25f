"""The operations of a document as tools: parameters and body in one schema, with the way back to the request.

An operation that cannot be used costs itself alone. Pure; knows no HTTP client.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from toolweave._repairs import Repair
from toolweave._value import Value
from toolweave.errors import SchemaError, printable
from toolweave.openapi._arguments import ArgumentNames
from toolweave.openapi._body_schemas import Body, is_json, read_body
from toolweave.openapi._document import ApiDocument, UnusablePart, escaped
from toolweave.openapi._schema_size import bounded, checkable
from toolweave.openapi._schemas import Needed, SchemaReader
from toolweave.protocol.json_types import as_array, as_object, as_text
from toolweave.schema import Validator
from toolweave.tools import NameMap, ToolName, ToolSpec
from toolweave.tools._arguments import encode
from toolweave.tools._selection import fits

_log = logging.getLogger("toolweave.openapi")
OPERATION_META = "io.toolweave/operation"
"""The member of a definition's `meta` with the method, the path, the operation id and the tags of its operation."""
UNDECLARED_PARAMETER = Repair(
    given="a path parameter that a document does not declare",
    read_as="a required text",
    limit="parameters of paths alone",
    switch="nothing: the operation has no URL without it; `exclude` leaves it out",
)
_METHODS = ("get", "head", "query", "post", "put", "patch", "delete")
_READS = frozenset(("GET", "HEAD", "QUERY"))
_STYLES = {"path": "simple", "header": "simple", "query": "form", "cookie": "form", "querystring": "form"}
_IGNORED = frozenset(
    ("accept", "authorization", "connection", "content-length", "content-type", "cookie", "host", "transfer-encoding")
)
"""Headers that are no parameters: by the specification, or because they frame the request."""
_PAGING = frozenset(
    (
        *("after", "before", "continuationtoken", "cursor", "limit", "marker", "next", "nexttoken", "offset"),
        *("page", "pagesize", "pagetoken", "perpage", "skip", "startafter", "startingafter", "top"),
    )
)
_EXPRESSION = re.compile(r"\{([^{}]+)\}")
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]+")
_MAX_OUTPUT_SCHEMA = 64 * 1024
MAX_INPUT_SCHEMA = 64 * 1024
"""Bytes of the schema of one tool's arguments; a model can hold few of this size."""


class OperationProblem(Value, frozen=True, kw_only=True):
    """A fault of a document.

    Attributes:
        operation: The method and path, such as `GET /pets/{id}`.
        pointer: JSON pointer to the part at fault (RFC 6901).
        reason: The fault.
        left_out: `"operation"` if there is no tool for it, `"output schema"` if the tool has none, else the part of the
            tool that is.
        tool: The name of the tool, or that which it would have; `""` for a path without readable operations.
    """

    operation: str
    pointer: str
    reason: str
    left_out: str = "operation"
    tool: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiParameter:
    """A parameter of an operation.

    Attributes:
        argument: Its name among the tool's arguments.
        name: Its own name.
        place: `path`, `query`, `header`, `cookie` or `querystring`.
        media_type: The media type of its value, or None where a style applies.
    """

    argument: str
    name: str
    place: str
    style: str
    explode: bool
    reserved: bool = False
    media_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operation that is a tool.

    Attributes:
        server: The URL template of its own server, with the values of its variables; None for that of the document.
        security: Alternatives, each the names of schemes; None where neither it nor the document says anything.
        accept: The media types that are asked for.
    """

    spec: ToolSpec
    method: str
    path: str
    parameters: tuple[ApiParameter, ...]
    body: Body | None
    server: Mapping[str, Any] | None
    security: tuple[tuple[str, ...], ...] | None
    accept: str
    arguments: Validator
    output: Validator | None

    @property
    def reads(self) -> bool:
        """Whether it changes nothing, by its method (RFC 9110, 9.2.1)."""
        return self.method in _READS


@dataclass(slots=True)
class OperationReader:
    """Reads the operations of one document.

    Args:
        document: The document.
        include, exclude: Patterns of operations.
        output_schemas: Whether tools have output schemas.
        upload_paths: Whether files may be given by path.
        concealed: Place and name of parameters that are no arguments: they are set elsewhere.
    """

    document: ApiDocument
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    output_schemas: bool = True
    upload_paths: bool = False
    concealed: frozenset[tuple[str, str]] = frozenset()
    problems: list[OperationProblem] = field(default_factory=list[OperationProblem])
    _inputs: SchemaReader = field(init=False)
    _outputs: SchemaReader = field(init=False)

    def __post_init__(self) -> None:
        self._inputs = SchemaReader(self.document, hidden="readOnly")
        self._outputs = SchemaReader(self.document, hidden="writeOnly")

    def read(self) -> list[Operation]:
        """Return the usable operations, in the document's order; the others are in `problems`."""
        found: list[tuple[str, str, dict[str, Any], str, dict[str, Any]]] = []
        for path, item in self.document.objects("paths").items():
            pointer = f"/paths/{escaped(path)}"
            if path.startswith("x-"):
                continue
            try:
                item, pointer = self.document.follow(item, pointer)
            except UnusablePart as exc:
                self.problems.append(OperationProblem(operation=path, pointer=exc.pointer, reason=exc.reason))
                continue
            found += [
                (method.upper(), path, item[method], f"{pointer}/{method}", item)
                for method in _METHODS
                if method in item
            ]
        names = self._names([(method, path, operation) for method, path, operation, _, _ in found])
        self._report_unused(
            [
                _words(method, path, operation, name)
                for (method, path, operation, _, _), (name, _) in zip(found, names, strict=True)
            ]
        )
        read: list[Operation] = []
        for (method, path, operation, pointer, item), (name, own) in zip(found, names, strict=True):
            if not self._wanted(method, path, operation, name):
                continue
            try:
                read.append(
                    self._operation(method, path, operation, pointer, item, ToolSpec(name=name, original_name=own))
                )
            except UnusablePart as exc:
                self._leave_out(f"{method} {path}", exc.pointer, exc.reason, tool=name)
            except SchemaError as exc:
                self._leave_out(f"{method} {path}", pointer, exc.message, tool=name)
            except (RecursionError, TypeError, AttributeError, ValueError) as exc:  # unforeseen shapes
                if isinstance(exc, RecursionError):
                    why = "it is nested too deeply"
                else:
                    why = f"it is malformed: {exc}"
                self._leave_out(f"{method} {path}", pointer, why, tool=name)
        return read

    def _leave_out(self, operation: str, pointer: str, reason: str, left_out: str = "operation", *, tool: str) -> None:
        problem = OperationProblem(operation=operation, pointer=pointer, reason=reason, left_out=left_out, tool=tool)
        self.problems.append(problem)

    def _names(self, found: Sequence[tuple[str, str, Any]]) -> list[tuple[str, str]]:
        """Return a legal name and the own name of each operation: its id if it has one of its own."""
        ids = [_text(operation, "operationId") for _, _, operation in found]
        times = Counter(ids)
        routes = [f"{method} {path}" for method, path, _ in found]
        words = [
            _ILLEGAL.sub("_", f"{route.partition(' ')[0].lower()}{route.partition(' ')[2]}").strip("_")
            for route in routes
        ]
        words_times = Counter([*words, *ids])
        exposed = [
            one if one and times[one] == 1 else word if words_times[word] == 1 else route
            for one, word, route in zip(ids, words, routes, strict=True)
        ]
        own = [one if one and times[one] == 1 else route for one, route in zip(ids, routes, strict=True)]
        wire = NameMap(ToolName(None, name, name) for name in exposed).wire_names
        return [(wire[name], original) for name, original in zip(exposed, own, strict=True)]

    def _report_unused(self, operations: Sequence[Sequence[str]]) -> None:
        """Log the patterns that fit no operation: one in `exclude` may be to take a dangerous one away."""
        for setting, patterns in (("include", self.include), ("exclude", self.exclude)):
            for pattern in patterns:
                if not any(fits([pattern], word) for words in operations for word in words):
                    _log.warning("%s: %r in %r fits no operation", printable(self.document.shown), pattern, setting)

    def _wanted(self, method: str, path: str, operation: Any, name: str) -> bool:
        words = _words(method, path, operation, name)

        def matches(patterns: Sequence[str]) -> bool:
            return any(fits(patterns, word) for word in words)

        return (not self.include or matches(self.include)) and not matches(self.exclude)

    def _operation(
        self, method: str, path: str, operation: Any, pointer: str, item: Mapping[str, Any], spec: ToolSpec
    ) -> Operation:
        operation, pointer = self.document.follow(operation, pointer)
        if not path.startswith("/"):
            raise UnusablePart(pointer, "its path does not start with '/'")
        arguments = ArgumentNames()
        parameters = self._parameters(operation, item, pointer, arguments)
        declared = {one.name for one in parameters if one.place == "path"}
        for name in dict.fromkeys(_EXPRESSION.findall(path)):
            if name not in declared:  # a document may forget a parameter that its path has; it can only be a text
                parameters.append(self._parameter(name, "path", {"schema": {"type": "string"}}, pointer, arguments))
        body = None
        if "requestBody" in operation:
            body = read_body(
                self.document, self._inputs, operation["requestBody"], f"{pointer}/requestBody", arguments,
                paths=self.upload_paths,
            )  # fmt: skip
        schema, check = self._input(arguments.schema(self._inputs), f"{method} {path}", pointer, spec.name)
        output, accept = self._responses(operation, f"{method} {path}", pointer, spec.name)
        servers = as_array(operation.get("servers")) or as_array(item.get("servers"))
        return Operation(
            spec=_described(spec, method, path, operation, parameters).replace(
                input_schema=schema, output_schema=None if output is None else output.schema
            ),
            method=method,
            path=path,
            parameters=tuple(parameters),
            body=body,
            server=as_object(servers[0]) if servers else None,
            security=_security(operation.get("security", self.document.root.get("security"))),
            accept=accept,
            arguments=check,
            output=output,
        )

    def _input(
        self, schema: dict[str, Any], operation: str, pointer: str, tool: str
    ) -> tuple[dict[str, Any], Validator]:
        """Return the schema of the arguments as it is shown, and its validator; note the parts that are left out.

        Raises:
            SchemaError: No part of it can be checked.
        """
        shown, depth = bounded(schema, MAX_INPUT_SCHEMA)
        if depth is not None:
            size = len(encode(schema)) // 1024
            reason = f"its input schema has {size:,} kB; parts nested more than {depth} levels deep are left open"
            self._leave_out(operation, pointer, reason, "deep parts of the input schema", tool=tool)
        try:
            return shown, Validator(shown)
        except SchemaError:
            check, changes = checkable(shown)
        self._leave_out(operation, pointer, "; ".join(changes), "part of the checks", tool=tool)
        return cast("dict[str, Any]", check.schema), check

    def _parameters(
        self, operation: Mapping[str, Any], item: Mapping[str, Any], pointer: str, arguments: ArgumentNames
    ) -> list[ApiParameter]:
        given: dict[tuple[str, str], tuple[dict[str, Any], str]] = {}
        for where, listed in ((pointer.rpartition("/")[0], item), (pointer, operation)):
            for index, one in enumerate(listed.get("parameters") or ()):
                node, at = self.document.follow(one, f"{where}/parameters/{index}")
                name = node.get("name")
                place = node.get("in")
                if not isinstance(name, str) or place not in _STYLES:
                    raise UnusablePart(at, f"a parameter has a name, and is in one of {', '.join(_STYLES)}")
                given[name, place] = node, at  # an operation's own wins
        read: list[ApiParameter] = []
        for (name, place), (node, at) in sorted(given.items(), key=lambda one: list(_STYLES).index(one[0][1])):
            known = (place, name.lower() if place == "header" else name)
            if known in self.concealed or (place == "header" and name.lower() in _IGNORED):
                continue
            read.append(self._parameter(name, place, node, at, arguments))
        return read

    def _parameter(
        self, name: str, place: str, node: Mapping[str, Any], pointer: str, arguments: ArgumentNames
    ) -> ApiParameter:
        content = as_object(node.get("content"))
        media_type: str | None = None
        if content:
            media_type, inner = next(iter(content.items()))
            schema = inner.get("schema", True)
            at = f"{pointer}/content/{escaped(media_type)}/schema"
        else:
            schema = node.get("schema", True)
            at = f"{pointer}/schema"
        read = self._inputs.read(schema, at, arguments.needed)
        style = as_text(node.get("style")) or _STYLES[place]
        argument = arguments.add(
            name, place, read, required=place == "path" or node.get("required") is True,
            description=_text(node, "description"),
        )  # fmt: skip
        explode = node.get("explode")
        return ApiParameter(
            argument=argument,
            name=name,
            place=place,
            style=style,
            explode=explode if isinstance(explode, bool) else style in ("form", "cookie"),
            reserved=node.get("allowReserved") is True,
            media_type=media_type,
        )

    def _responses(
        self, operation: Mapping[str, Any], named: str, pointer: str, tool: str
    ) -> tuple[Validator | None, str]:
        """Return the validator of successful answers if all are JSON, and the media types to accept."""
        types: dict[str, None] = {}
        schemas: list[tuple[Any, str]] = []
        told = True
        for status, one in (as_object(operation.get("responses")) or {}).items():
            if not status.startswith("2"):
                continue
            try:
                node, at = self.document.follow(one, f"{pointer}/responses/{escaped(status)}")
            except UnusablePart:
                told = False
                continue
            content = as_object(node.get("content")) or {}
            types |= dict.fromkeys(content)
            kind = next(filter(is_json, content), "")
            media = as_object(content.get(kind)) or {}
            told = told and "schema" in media
            schemas += [(media["schema"], f"{at}/content/{escaped(kind)}/schema")] if told else []
        accept = ", ".join([*sorted(types, key=lambda kind: not is_json(kind)), "*/*;q=0.1"] if types else ["*/*"])
        if not (told and schemas and self.output_schemas):
            return None, accept
        try:
            return self._output(schemas), accept
        except (UnusablePart, SchemaError) as exc:
            if isinstance(exc, UnusablePart):
                reason = exc.reason
            else:
                reason = exc.message
            self._leave_out(named, exc.pointer or pointer, reason, "output schema", tool=tool)
            return None, accept

    def _output(self, schemas: Sequence[tuple[Any, str]]) -> Validator:
        needed: Needed = {}
        read: list[Any] = []
        for schema, pointer in schemas:
            one = self._outputs.read(schema, pointer, needed)
            if one not in read:
                read.append(one)
        whole = as_object(read[0]) if len(read) == 1 else None
        whole = {"anyOf": read} if whole is None else whole
        definitions = self._outputs.definitions(needed)
        while whole.keys() == {"$ref"}:  # handshake-era clients look for the type
            whole = definitions[str(whole["$ref"]).removeprefix("#/$defs/")]
        if definitions:
            whole = {**whole, "$defs": definitions}
        if len(encode(whole)) > _MAX_OUTPUT_SCHEMA:
            raise SchemaError(
                f"its output schema is larger than {_MAX_OUTPUT_SCHEMA // 1024} kB", pointer=schemas[0][1]
            )
        try:
            return Validator(whole)
        except SchemaError:
            return checkable(whole)[0]


def _described(
    spec: ToolSpec, method: str, path: str, operation: Mapping[str, Any], parameters: Sequence[ApiParameter]
) -> ToolSpec:
    """Return the definition with its texts and hints, and with the parameters by which it has pages."""
    summary = _text(operation, "summary")
    description = _text(operation, "description")
    parts = [summary, description if description != summary else ""]
    paging = [one.argument for one in parameters if _is_paging(one)]
    if paging:
        parts.append(f"Answers come in pages, by {', '.join(f'`{name}`' for name in paging)}.")
    if operation.get("deprecated") is True:
        parts.append("Deprecated.")
    hints: dict[str, Any] = {"readOnlyHint": method in _READS}
    if method in ("PUT", "DELETE"):
        hints["idempotentHint"] = True
    if method == "DELETE":
        hints["destructiveHint"] = True
    about: dict[str, Any] = {"method": method, "path": path}
    if _text(operation, "operationId"):
        about["operationId"] = operation["operationId"]
    if isinstance(tags := operation.get("tags"), list) and tags:
        about["tags"] = tags
    if paging:
        about["paging"] = paging
    return spec.replace(
        title=summary or None,
        description="\n\n".join(part for part in parts if part) or f"{method} {path}",
        annotations=hints,
        meta={OPERATION_META: about},
    )


def _is_paging(parameter: ApiParameter) -> bool:
    word = parameter.name.lower().replace("_", "").replace("-", "").lstrip("$")
    return parameter.place == "query" and word in _PAGING


def _security(given: Any) -> tuple[tuple[str, ...], ...] | None:
    listed = as_array(given)
    if listed is None:
        return None
    return tuple(tuple(as_object(one) or ()) for one in listed)


def _text(node: Any, name: str) -> str:
    return (as_text((as_object(node) or {}).get(name)) or "").strip()


def _words(method: str, path: str, operation: Any, name: str) -> list[str]:
    """Return the words of an operation that a pattern may fit."""
    tags = as_array((as_object(operation) or {}).get("tags")) or ()
    return [name, f"{method} {path}", _text(operation, "operationId"), *(f"tag:{tag}" for tag in tags)]
