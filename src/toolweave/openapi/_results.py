"""Answers of an API as results of tools: JSON as structured content, others as text or blocks, failures as errors."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urljoin, urlsplit

import anyio
import msgspec

from toolweave._json import decode_json
from toolweave._json_types import Json, as_integer, as_object, object_or_empty
from toolweave._repairs import Repair
from toolweave.errors import ErrorKind, ToolError, printable, shortened
from toolweave.http import BodyError, Inflater, TransportError
from toolweave.openapi._body_schemas import is_json
from toolweave.openapi._operations import Operation
from toolweave.openapi._sender import ApiAnswer, ApiRequest, unanswered
from toolweave.protocol.content import TextContent
from toolweave.protocol.sse import EventParser
from toolweave.schema import describe
from toolweave.tools import CallContext, File, ToolResult
from toolweave.tools.result import OUTPUT_MISMATCH_META

_log = logging.getLogger("toolweave.openapi")
UNPROMISED = Repair(
    given="a response with a status of success that its document does not promise",
    read_as="a success with a note in `meta`",
    limit="it has no structured content where the output schema must hold",
    switch="`OpenApiOptions(output_schemas=False)` promises nothing",
    problem="HTTP {} is not as the document promises: {}",
)
NEXT_PAGE_META = "io.toolweave/next-page"
"""The member of a result's `meta` for the next page: `arguments` that differ for it, and its `url` if there is one."""
_MAX_ERROR = 4_000
_STREAM_SECONDS = 600.0
_TEXTUAL = ("text/", "application/xml", "application/yaml", "application/javascript", "application/graphql")
_NEXT = re.compile(r'<([^<>]*)>((?:\s*;\s*[\w*-]+\s*=\s*(?:"[^"]*"|[^\s",;]+))*)')
_IS_NEXT = re.compile(r';\s*rel\s*=\s*"?(?:[^"]*\s)?next(?:\s[^"]*)?"?(?:\s*;|\s*$)', re.IGNORECASE)
_CHARSET = re.compile(r"charset\s*=\s*\"?([\w.:-]+)", re.IGNORECASE)
_NEXT_FIELDS = re.compile(r"next_?(?:page_?)?(?:url|link|token|cursor|marker|offset|page)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerReader:
    """Reads answers.

    Attributes:
        max_bytes: The largest answer.
        seconds: The longest time without a piece of a stream of events.
        through: The end of an error about a page that a proxy may have sent.
    """

    max_bytes: int
    seconds: float
    through: str = ""

    async def read(
        self, operation: Operation, request: ApiRequest, answer: ApiAnswer, url: str, ctx: CallContext
    ) -> ToolResult:
        """Return the result of an answer.

        Raises:
            ToolError: It breaks off, is too large or cannot be read.
        """
        if answer.encoding and not Inflater.reads(answer.encoding):
            raise ToolError(
                f"the answer has the content encoding {shortened(answer.encoding, 40)!r}, which was not requested"
            )
        kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "text/event-stream" and answer.status < 300:
            return await self._events(answer, ctx)
        body = b""
        if request.method != "HEAD":
            try:
                body = await self.whole(answer)
            except TransportError as exc:
                raise unanswered(exc, request) from None
        if not 200 <= answer.status < 300:
            return _failure(answer, body, kind, self.through)
        if request.method == "HEAD":
            return ToolResult.of_json({"status": answer.status, "headers": dict(answer.headers)})
        if not body:
            result = ToolResult(content=(TextContent(text=f"{answer.status} {answer.reason}".strip()),))
            return _checked(operation, answer, result)
        result = _content(answer, body, kind, url)
        next_page = _next_page(operation, answer, result.structured_content, url)
        if next_page:
            way = next_page.get("arguments") or next_page.get("url")
            note = TextContent(text=f"There is a next page: {msgspec.json.encode(way).decode()}")
            result = result.replace(content=(*result.content, note), meta={NEXT_PAGE_META: next_page})
        return _checked(operation, answer, result)

    async def whole(self, answer: ApiAnswer) -> bytes:
        """Return the whole body.

        Raises:
            TransportError: It breaks off, or is too large.
        """
        pieces = list[bytes]()
        size = 0
        while piece := await answer.piece():
            size += len(piece)
            if size > self.max_bytes:
                raise BodyError(f"it is larger than {self.max_bytes:,} bytes", limit=self.max_bytes)
            pieces.append(piece)
        return b"".join(pieces)

    async def _events(self, answer: ApiAnswer, ctx: CallContext) -> ToolResult:
        """Return the events of a stream, up to its end or to a bound; each is progress."""
        events: list[Any] = []
        complete = False
        with anyio.move_on_after(_STREAM_SECONDS):
            async for event in self._stream(answer):
                if event is None:
                    complete = True
                    break
                events.append(event)
                await ctx.progress(len(events))
        return ToolResult.of_json({"events": events, "complete": complete})

    async def _stream(self, answer: ApiAnswer) -> AsyncGenerator[Any, None]:
        """Yield events as JSON and None at the end; only stop if the stream is silent too long or breaks a bound."""
        parser = EventParser(self.max_bytes)
        size = 0
        # A stream that breaks a bound ends here without an error: the events so far are a result, and `complete` says
        # that there may have been more.
        while size <= self.max_bytes:
            piece: bytes | None = None
            with anyio.move_on_after(self.seconds):
                try:
                    piece = await answer.piece()
                except TransportError:
                    return
            if piece is None:
                return
            if not piece:
                yield None
                return
            size += len(piece)
            try:
                found = parser.feed(piece)
            except ValueError:
                return
            for event in found:
                text = event.data.decode("utf-8", "replace")
                yield {"event": event.type, "data": _json(event.data, text)}


def _content(answer: ApiAnswer, body: bytes, kind: str, url: str) -> ToolResult:
    if is_json(kind):
        try:
            return ToolResult.of_json(decode_json(body))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # The call has succeeded, even if its answer is not the JSON that its content type promises.
            return ToolResult(content=(TextContent(text=_decoded(body, answer)),))
    if kind.startswith(_TEXTUAL) or kind.endswith(("+xml", "+yaml", "json", "jsonl")):
        return ToolResult(content=(TextContent(text=_decoded(body, answer)),))
    where = url.partition("?")[0]
    if kind:
        return ToolResult.of(File(body, mime_type=kind, uri=where))
    try:
        return ToolResult(content=(TextContent(text=body.decode()),))
    except UnicodeDecodeError:
        return ToolResult.of(File(body, mime_type=None, uri=where))


def _checked(operation: Operation, answer: ApiAnswer, result: ToolResult) -> ToolResult:
    """Return the result, with a note in its `meta` if it does not match the document.

    The call has succeeded: as an error, a model would make it again.
    """
    if operation.output is None or operation.output.is_valid(result.structured_content):
        return result
    found = describe(operation.output.problems(result.structured_content))
    if result.structured_content is None:
        found = f"the answer is not JSON; its content type is {answer.headers.get('content-type', '')[:100]!r}"
    text = UNPROMISED.problem.format(answer.status, found)
    _log.warning("%s %s: the answer with %s", operation.method, operation.path, printable(text))
    return result.replace(meta={**result.meta, OUTPUT_MISMATCH_META: text})


def _failure(answer: ApiAnswer, body: bytes, kind: str, through: str) -> ToolResult:
    status = answer.status
    text = shortened(_decoded(body, answer).strip(), _MAX_ERROR)
    data: Json = {"status": status}
    if is_json(kind) and len(body) <= _MAX_ERROR:
        data["body"] = _json(body, text)
    if "retry-after" in answer.headers:
        data["retry_after"] = answer.headers["retry-after"]
    message = f"HTTP {status} {answer.reason}".strip()
    if text:
        message += f": {text}"
    # JSON is from the API; a page may be from a proxy
    if not is_json(kind):
        message += through
    if status == 401:
        error_kind = ErrorKind.AUTH_REQUIRED
    else:
        error_kind = ErrorKind.EXECUTION_FAILED
    # Only 429 promises that nothing was done (RFC 6585, 4). After a 503 this is not known.
    return ToolResult.failure(ToolError(message, kind=error_kind, code=status, retryable=status == 429, data=data))


def _next_page(operation: Operation, answer: ApiAnswer, value: object, url: str) -> Json:
    """Return the value of `NEXT_PAGE_META` for an answer, or an empty object if it names no next page."""
    queries = {one.name: one.argument for one in operation.parameters if one.location == "query"}
    for name, target in _page_fields(answer, value):
        if isinstance(target, str) and target.startswith(("http://", "https://", "/", "?")):
            return _page_at(urljoin(url, target), queries, operation)
        known = _parameter_for(name, queries)
        if known is not None:
            return {"arguments": {known: target}}
    return {}


def _page_fields(answer: ApiAnswer, value: object) -> Iterator[tuple[str, str | int]]:
    """Yield candidates for the next page: the `Link` header, then the fields of the answer with usual names."""
    # The header first, as it is standardised; the fields are a guess by usual names. A member of the answer itself
    # hides one of the same name in an inner object.
    link = _link(answer.headers.get("link", ""))
    fields = object_or_empty(value)
    for name in ("links", "_links", "paging", "pagination", "meta"):
        fields = {**object_or_empty(fields.get(name)), **fields}
    if link:
        fields = {"next": link, **fields}
    for name, field in fields.items():
        members = as_object(field)
        target = field
        if members is not None:
            target = members.get("href")
        if not _NEXT_FIELDS.fullmatch(name):
            continue
        if target and isinstance(target, str):
            yield name, target
        number = as_integer(target)
        if number is not None:
            yield name, number


def _page_at(url: str, queries: Mapping[str, str], operation: Operation) -> Json:
    """Return the URL of a page, and the arguments that are in its query."""
    try:
        pairs = parse_qsl(urlsplit(url).query, max_num_fields=100)
    except ValueError:
        return {}
    schemas = operation.spec.input_schema["properties"]
    arguments: Json = {}
    for name, text in pairs:
        if name in queries:
            argument = queries[name]
            arguments[argument] = _argument_of(text, schemas[argument])
    if arguments:
        return {"url": url, "arguments": arguments}
    return {"url": url}


def _argument_of(text: str, schema: object) -> str | int:
    """Return a text of a query as the number that its schema requires, or as it is."""
    is_number = text.isascii() and text.isdecimal() and len(text) < 16
    if is_number and "integer" in str(schema):
        return int(text)
    return text


def _parameter_for(field: str, queries: Mapping[str, str]) -> str | None:
    """Return the argument of the query parameter that a field is for: `page_token` for `nextPageToken`."""
    wanted = field.lower().replace("_", "").removeprefix("next")
    words = {name.lower().replace("_", ""): argument for name, argument in queries.items()}
    names = ("next", "cursor", "page", "offset")
    if wanted:
        names = (wanted,)
    for name in names:
        if name in words:
            return words[name]
    return None


def _link(header: str) -> str:
    """Return the target of the link to the next page (RFC 8288), or nothing."""
    for found in _NEXT.finditer(header):
        if _IS_NEXT.search(found[2]):
            return found[1]
    return ""


def _decoded(body: bytes, answer: ApiAnswer) -> str:
    found = _CHARSET.search(answer.headers.get("content-type", ""))
    if found is None:
        return body.decode("utf-8", "replace")
    try:
        return body.decode(found[1], "replace")
    except LookupError:  # no such charset
        return body.decode("utf-8", "replace")


def _json(data: bytes, otherwise: Any) -> Any:
    try:
        return decode_json(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return otherwise
