"""The operations of a document as tools: parameters and body in one schema, with the way back to the request.

An operation that cannot be used costs itself alone. Pure; knows no HTTP client.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from toolweave._json_types import (
    Json,
    JsonObject,
    array_or_empty,
    as_array,
    as_object,
    as_text,
    object_or_empty,
    text_or_empty,
)
from toolweave._repairs import Repair
from toolweave._value import Value
from toolweave.errors import SchemaError, printable
from toolweave.openapi._arguments import ArgumentNames
from toolweave.openapi._body_schemas import Body, is_json, read_body
from toolweave.openapi._document import ApiDocument, UnusablePart, escaped
from toolweave.openapi._schema_size import bounded, checkable
from toolweave.openapi._schemas import Needed, SchemaReader
from toolweave.schema import Validator
from toolweave.tools import NameMap, ToolName, ToolSpec
from toolweave.tools.arguments import encode
from toolweave.tools.selection import fits

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
"""Headers that are not parameters: by the specification, or because they frame the request."""
_PAGING = frozenset(
    (
        *("after", "before", "continuationtoken", "cursor", "limit", "marker", "next", "nexttoken", "offset"),
        *("page", "pagesize", "pagetoken", "perpage", "skip", "startafter", "startingafter", "top"),
    )
)
_EXPRESSION = re.compile(r"\{([^{}]+)\}")
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]+")
_NOT_A_WORD = re.compile(r"\W")
_MAX_OUTPUT_SCHEMA = 64 * 1024
MAX_INPUT_SCHEMA = 64 * 1024
"""Bytes of the schema of one tool's arguments; a model can hold few of this size."""


class OperationProblem(Value, frozen=True, kw_only=True):
    """A fault of a document.

    Attributes:
        operation: The method and path, such as `GET /pets/{id}`.
        pointer: JSON pointer to the part at fault (RFC 6901).
        reason: The fault.
        skipped: `"operation"` if the operation has no tool, `"output schema"` if its tool has no output schema, else
            the missing part of the tool.
        tool: The name of the tool, even if it is excluded; `""` for a path without readable operations.
    """

    operation: str
    pointer: str
    reason: str
    skipped: str = "operation"
    tool: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiParameter:
    """A parameter of an operation.

    Attributes:
        argument: The name of the tool's argument for it.
        name: The name in the request.
        location: `path`, `query`, `header`, `cookie` or `querystring`.
        media_type: The media type of its value, or None where a style applies.
    """

    argument: str
    name: str
    location: str
    style: str
    explode: bool
    reserved: bool = False
    media_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operation that is a tool.

    Attributes:
        server: The server object of the operation or of its path; None for the server of the document.
        security: Alternatives, each the names of schemes; None if neither the operation nor the document has any.
        accept: The value of the `accept` header.
    """

    spec: ToolSpec
    method: str
    path: str
    parameters: tuple[ApiParameter, ...]
    body: Body | None
    server: JsonObject | None
    security: tuple[tuple[str, ...], ...] | None
    accept: str
    arguments: Validator
    output: Validator | None

    @property
    def reads(self) -> bool:
        """Whether it changes nothing, by its method (RFC 9110, 9.2.1)."""
        return self.method in _READS


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """An operation of the document that is not read yet.

    Attributes:
        node: The operation, which may be a reference or malformed.
        pointer: JSON pointer to it.
        item: The path item that contains it.
    """

    method: str
    path: str
    node: object
    pointer: str
    item: Json

    @property
    def route(self) -> str:
        """The method and the path, such as `GET /pets/{id}`."""
        return f"{self.method} {self.path}"

    @property
    def operation_id(self) -> str:
        return _text(self.node, "operationId")

    def words(self, name: str) -> list[str]:
        """Return the words that a pattern is compared with, for a tool of this name."""
        tags = [f"tag:{tag}" for tag in array_or_empty(object_or_empty(self.node).get("tags"))]
        return [name, self.route, self.operation_id, *tags]


@dataclass(slots=True)
class OperationReader:
    """Reads the operations of one document.

    Args:
        document: The document.
        include, exclude: Patterns of operations.
        output_schemas: Whether tools have output schemas.
        upload_paths: Whether files may be given by path.
        concealed: Location and name of parameters that are set elsewhere, so they are not arguments.
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
        candidates = self._candidates()
        names = self._names(candidates)
        words = [one.words(name) for one, (name, _) in zip(candidates, names, strict=True)]
        self._report_unused(words)
        read: list[Operation] = []
        for candidate, (name, original), own_words in zip(candidates, names, words, strict=True):
            if not self._is_selected(own_words):
                continue
            operation = self._read_one(candidate, name, original)
            if operation is not None:
                read.append(operation)
        return read

    def _candidates(self) -> list[_Candidate]:
        found: list[_Candidate] = []
        for path, node in self.document.objects("paths").items():
            if path.startswith("x-"):
                continue
            try:
                item, pointer = self.document.follow(node, f"/paths/{escaped(path)}")
            except UnusablePart as exc:
                self.problems.append(OperationProblem(operation=path, pointer=exc.pointer, reason=exc.reason))
                continue
            for method in _METHODS:
                if method not in item:
                    continue
                at = f"{pointer}/{method}"
                found.append(_Candidate(method=method.upper(), path=path, node=item[method], pointer=at, item=item))
        return found

    def _read_one(self, candidate: _Candidate, name: str, original: str) -> Operation | None:
        """Return a usable operation, or None after a problem was added."""
        route = candidate.route
        try:
            return self._operation(candidate, ToolSpec(name=name, original_name=original))
        except UnusablePart as exc:
            self._leave_out(route, exc.pointer, exc.reason, tool=name)
        except SchemaError as exc:
            self._leave_out(route, candidate.pointer, exc.message, tool=name)
        except RecursionError:
            self._leave_out(route, candidate.pointer, "it is nested too deeply", tool=name)
        except (TypeError, AttributeError, ValueError) as exc:
            # A document can have the wrong type anywhere. A shape that no check expects must not lose the other tools.
            self._leave_out(route, candidate.pointer, f"it is malformed: {exc}", tool=name)
        return None

    def _leave_out(self, operation: str, pointer: str, reason: str, skipped: str = "operation", *, tool: str) -> None:
        problem = OperationProblem(operation=operation, pointer=pointer, reason=reason, skipped=skipped, tool=tool)
        self.problems.append(problem)

    def _names(self, candidates: Sequence[_Candidate]) -> list[tuple[str, str]]:
        """Return the wire name and the original name of each operation: its id if no other operation has that id."""
        id_counts = Counter(one.operation_id for one in candidates)
        # A word made of a route may also be the id of another operation, so both are counted together.
        word_counts = Counter(map(_word, candidates))
        word_counts.update(id_counts)
        exposed: list[str] = []
        originals: list[str] = []
        for one in candidates:
            operation_id = one.operation_id
            if operation_id and id_counts[operation_id] == 1:
                exposed.append(operation_id)
                originals.append(operation_id)
                continue
            word = _word(one)
            if word_counts[word] == 1:
                exposed.append(word)
            else:
                exposed.append(one.route)
            originals.append(one.route)
        exposed = _with_function_names(candidates, exposed)
        wire = NameMap(ToolName(None, name, name) for name in exposed).wire_names
        return [(wire[name], original) for name, original in zip(exposed, originals, strict=True)]

    def _report_unused(self, operations: Sequence[Sequence[str]]) -> None:
        """Log the patterns that fit no operation: one in `exclude` may be meant for a dangerous operation."""
        every_word = list(chain.from_iterable(operations))
        for setting, patterns in (("include", self.include), ("exclude", self.exclude)):
            for pattern in patterns:
                if not _any_fits([pattern], every_word):
                    _log.warning("%s: %r in %r fits no operation", printable(self.document.shown), pattern, setting)

    def _is_selected(self, words: Iterable[str]) -> bool:
        if self.include and not _any_fits(self.include, words):
            return False
        return not _any_fits(self.exclude, words)

    def _operation(self, candidate: _Candidate, spec: ToolSpec) -> Operation:
        method = candidate.method
        path = candidate.path
        route = candidate.route
        item = candidate.item
        operation, pointer = self.document.follow(candidate.node, candidate.pointer)
        if not path.startswith("/"):
            raise UnusablePart(pointer, "its path does not start with '/'")
        arguments = ArgumentNames()
        parameters = self._parameters(operation, item, pointer, arguments)
        declared = {one.name for one in parameters if one.location == "path"}
        for name in dict.fromkeys(_EXPRESSION.findall(path)):
            # a document may forget a parameter that its path has; it can only be a text
            if name not in declared:
                parameters.append(self._parameter(name, "path", {"schema": {"type": "string"}}, pointer, arguments))
        body = None
        if "requestBody" in operation:
            body = read_body(
                self.document, self._inputs, operation["requestBody"], f"{pointer}/requestBody", arguments,
                paths=self.upload_paths,
            )  # fmt: skip
        schema, check = self._input(arguments.schema(self._inputs), route, pointer, spec.name)
        output, accept = self._responses(operation, route, pointer, spec.name)
        described = _described(spec, candidate, operation, parameters).replace(input_schema=schema)
        if output is not None:
            described = described.replace(output_schema=output.schema)
        return Operation(
            spec=described,
            method=method,
            path=path,
            parameters=tuple(parameters),
            body=body,
            server=_first_server(operation, item),
            security=_security(operation.get("security", self.document.root.get("security"))),
            accept=accept,
            arguments=check,
            output=output,
        )

    def _input(self, schema: Json, operation: str, pointer: str, tool: str) -> tuple[JsonObject, Validator]:
        """Return the schema of the arguments that a model reads, and its validator; add a problem for missing parts.

        Raises:
            SchemaError: No part of the schema can be checked.
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
        return object_or_empty(check.schema), check

    def _parameters(
        self, operation: JsonObject, item: JsonObject, pointer: str, arguments: ArgumentNames
    ) -> list[ApiParameter]:
        given: dict[tuple[str, str], tuple[Json, str]] = {}
        for where, listed in ((pointer.rpartition("/")[0], item), (pointer, operation)):
            for index, one in enumerate(listed.get("parameters") or ()):
                node, at = self.document.follow(one, f"{where}/parameters/{index}")
                name = node.get("name")
                location = node.get("in")
                if not isinstance(name, str) or location not in _STYLES:
                    raise UnusablePart(at, f"a parameter has a name, and is in one of {', '.join(_STYLES)}")
                # the operation is read last: its parameters replace those of the path
                given[name, location] = node, at
        read: list[ApiParameter] = []
        # In the order of `_STYLES`: the parameters of the path, which are required, come first in the schema.
        for (name, location), (node, at) in sorted(given.items(), key=lambda one: list(_STYLES).index(one[0][1])):
            if not self._is_set_elsewhere(location, name):
                read.append(self._parameter(name, location, node, at, arguments))
        return read

    def _is_set_elsewhere(self, location: str, name: str) -> bool:
        if location != "header":
            return (location, name) in self.concealed
        lowered = name.lower()
        return lowered in _IGNORED or (location, lowered) in self.concealed

    def _parameter(
        self, name: str, location: str, node: JsonObject, pointer: str, arguments: ArgumentNames
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
        style = as_text(node.get("style")) or _STYLES[location]
        # Without a value there would be no path, whatever the document says.
        required = location == "path" or node.get("required") is True
        argument = arguments.add(name, location, read, required=required, description=_text(node, "description"))
        explode = node.get("explode")
        if not isinstance(explode, bool):
            explode = style in ("form", "cookie")
        return ApiParameter(
            argument=argument,
            name=name,
            location=location,
            style=style,
            explode=explode,
            reserved=node.get("allowReserved") is True,
            media_type=media_type,
        )

    def _responses(self, operation: JsonObject, route: str, pointer: str, tool: str) -> tuple[Validator | None, str]:
        """Return the validator of successful responses if all are JSON, and the value of the `accept` header."""
        types: dict[str, None] = {}
        schemas: list[tuple[object, str]] = []
        # every successful response has a schema for JSON
        complete = True
        for status, one in object_or_empty(operation.get("responses")).items():
            if not status.startswith("2"):
                continue
            try:
                node, at = self.document.follow(one, f"{pointer}/responses/{escaped(status)}")
            except UnusablePart:
                complete = False
                continue
            content = object_or_empty(node.get("content"))
            types |= dict.fromkeys(content)
            kind = next(filter(is_json, content), "")
            media = object_or_empty(content.get(kind))
            if "schema" in media:
                schemas.append((media["schema"], f"{at}/content/{escaped(kind)}/schema"))
            else:
                complete = False
        accept = _accept(types)
        # With one success of unknown form, the output schema would refuse results that are right.
        if not (complete and schemas and self.output_schemas):
            return None, accept
        try:
            return self._output(schemas), accept
        except UnusablePart as exc:
            self._leave_out(route, exc.pointer, exc.reason, "output schema", tool=tool)
        except SchemaError as exc:
            self._leave_out(route, exc.pointer or pointer, exc.message, "output schema", tool=tool)
        return None, accept

    def _output(self, schemas: Sequence[tuple[object, str]]) -> Validator:
        needed: Needed = {}
        # each a schema: an object or a boolean
        read: list[Any] = []
        for schema, pointer in schemas:
            one = self._outputs.read(schema, pointer, needed)
            if one not in read:
                read.append(one)
        first, *others = read
        whole = as_object(first)
        if others or whole is None:
            whole = {"anyOf": read}
        definitions = self._outputs.definitions(needed)
        # handshake-era clients look for the type
        while whole.keys() == {"$ref"}:
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
    spec: ToolSpec, candidate: _Candidate, operation: JsonObject, parameters: Sequence[ApiParameter]
) -> ToolSpec:
    """Return the definition with its texts and hints, and with the parameters that select a page."""
    method = candidate.method
    summary = _text(operation, "summary")
    description = _text(operation, "description")
    paging = [one.argument for one in parameters if _is_paging(one)]
    parts: list[str] = []
    if not description or not _repeats_name(summary, spec.name, candidate):
        parts.append(summary)
    if description != summary:
        parts.append(description)
    if paging:
        parts.append(f"Answers come in pages, by {', '.join(f'`{name}`' for name in paging)}.")
    if operation.get("deprecated") is True:
        parts.append("Deprecated.")
    hints: Json = {"readOnlyHint": method in _READS}
    # By RFC 9110, 9.2.2. A POST may be idempotent as well, but nothing says so, and effects are not guessed.
    if method in ("PUT", "DELETE"):
        hints["idempotentHint"] = True
    if method == "DELETE":
        hints["destructiveHint"] = True
    return spec.replace(
        title=summary or None,
        description="\n\n".join(filter(None, parts)) or candidate.route,
        annotations=hints,
        meta={OPERATION_META: _operation_meta(candidate, operation, paging)},
    )


def _operation_meta(candidate: _Candidate, operation: JsonObject, paging: Sequence[str]) -> Json:
    """Return the value of `OPERATION_META` for an operation."""
    members: Json = {"method": candidate.method, "path": candidate.path}
    if _text(operation, "operationId"):
        members["operationId"] = operation["operationId"]
    tags = as_array(operation.get("tags"))
    if tags:
        members["tags"] = tags
    if paging:
        members["paging"] = list(paging)
    return members


def _is_paging(parameter: ApiParameter) -> bool:
    word = parameter.name.lower().replace("_", "").replace("-", "").lstrip("$")
    return parameter.location == "query" and word in _PAGING


def _first_server(*nodes: JsonObject) -> JsonObject | None:
    """Return the first server of the first object that has servers."""
    for node in nodes:
        servers = as_array(node.get("servers"))
        if servers:
            return as_object(servers[0])
    return None


def _security(given: object) -> tuple[tuple[str, ...], ...] | None:
    listed = as_array(given)
    if listed is None:
        return None
    return tuple(tuple(object_or_empty(one)) for one in listed)


def _accept(types: Iterable[str]) -> str:
    """Return an `accept` header for these media types, JSON first: it becomes structured content."""
    listed = sorted(types, key=lambda kind: not is_json(kind))
    if not listed:
        return "*/*"
    # Documents are often incomplete: a server must not refuse a request for a type that is not listed (406).
    return ", ".join([*listed, "*/*;q=0.1"])


def _text(node: object, name: str) -> str:
    return text_or_empty(object_or_empty(node).get(name)).strip()


def _word(candidate: _Candidate) -> str:
    """Return a legal tool name for an operation without an id, such as `get_pets_id`."""
    return _ILLEGAL.sub("_", f"{candidate.method.lower()}{candidate.path}").strip("_")


def _with_function_names(candidates: Sequence[_Candidate], names: Sequence[str]) -> list[str]:
    """Return these names, with the name of its function for each operation that FastAPI has named.

    Two functions of one name keep their ids, and so does a function with the name of another operation: with a short
    name for one of them, the order of the document would decide which operation a name means.
    """
    functions = list(map(_function_name, candidates))
    counts = Counter((*functions, *names))
    exposed = list(names)
    for at, function in enumerate(functions):
        if function and counts[function] == 1:
            exposed[at] = function
    return exposed


def _function_name(candidate: _Candidate) -> str:
    """Return the name of the function of a route in FastAPI, or an empty string if its id is not made of one.

    Without an `operation_id`, FastAPI joins the function, the path and the method: `read_item_items__item_id__get`.
    """
    route = _NOT_A_WORD.sub("_", f"{candidate.path}_{candidate.method.lower()}")
    if not candidate.operation_id.endswith(route):
        return ""
    return candidate.operation_id.removesuffix(route)


def _repeats_name(summary: str, name: str, candidate: _Candidate) -> bool:
    """Whether a summary is only the words of a name, such as `Read Item`, which FastAPI makes of `read_item`."""
    names = (name, candidate.operation_id, _function_name(candidate))
    return _letters(summary) in map(_letters, names)


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text)).lower()


def _any_fits(patterns: Sequence[str], words: Iterable[str]) -> bool:
    return any(fits(patterns, word) for word in words)
