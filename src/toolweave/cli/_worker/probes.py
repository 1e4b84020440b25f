"""The port of a worker for orchestrators and Prometheus: `/healthz`, `/readyz` and `/metrics`.

One request a connection, of which only the head is read: probes send nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal

import anyio
import anyio.abc

from toolweave.cli._serve.listen import cannot_listen, listening
from toolweave.gateway._admin.extras import missing
from toolweave.http.local_pages import IncomingHead, LocalPages, page_answer

if TYPE_CHECKING:
    from toolweave.cli._worker.metrics import WorkerMetrics
    from toolweave.state import Store

_log = logging.getLogger("toolweave.cli.worker")
_MAX_CONNECTIONS = 50
_REQUEST_SECONDS = 10.0
_TEXT = "text/plain; charset=utf-8"
_FIGURES = "text/plain; version=0.0.4; charset=utf-8"


class WorkerProbes:
    """The state of a worker, and the port that shows it.

    Args:
        metrics: Its metrics, or None for no `/metrics`.

    Attributes:
        state: Whether it accepts jobs.
        metrics: Its metrics.
        address: The address of its port while that is served, such as `http://127.0.0.1:8001`.
    """

    def __init__(self, metrics: WorkerMetrics | None = None) -> None:
        self.state: Literal["starting", "ready", "stopping"] = "starting"
        self.metrics = metrics
        self.address: str | None = None
        self._pages = LocalPages(
            self._response,
            log=_log,
            subject="a request of a probe",
            max_connections=_MAX_CONNECTIONS,
            seconds=_REQUEST_SECONDS,
        )

    def started(self, topics: Iterable[str]) -> None:
        """Note that jobs of these topics are accepted."""
        self.state = "ready"
        if self.metrics is not None:
            self.metrics.started(topics)

    def stopping(self) -> None:
        """Note that no more jobs are accepted."""
        self.state = "stopping"

    @asynccontextmanager
    async def serving(self, where: str) -> AsyncGenerator[None]:
        """Serve at `[HOST:]PORT` during the block.

        Raises:
            CommandError: The port cannot be bound.
        """
        host, port = listening(where)
        try:
            listener = await anyio.create_tcp_listener(local_host=host.strip("[]"), local_port=port)
        except OSError as error:
            raise cannot_listen(where, error) from None
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, self._pages.serve)
            # The port that was bound: port 0 asks for any free one.
            self.address = f"http://{host}:{listener.extra(anyio.abc.SocketAttribute.local_port)}"  # noqa: S610 - not Django
            yield
            tasks.cancel_scope.cancel()

    async def _response(self, head: IncomingHead) -> bytes:
        """Return the response to a request."""
        if not head.complete:
            return _reply(431 if head.too_long else 400)
        if head.method not in (b"GET", b"HEAD"):
            return _reply(405, headers=("Allow: GET, HEAD",))
        path = head.target.partition(b"?")[0]
        if path == b"/healthz":
            reply = _reply(200, b"ok")
        elif path == b"/readyz":
            reply = _reply(200 if self.state == "ready" else 503, self.state.encode())
        elif path == b"/metrics" and self.metrics is not None:
            reply = _reply(200, await self.metrics.rendered(), kind=_FIGURES)
        else:
            reply = _reply(404)
        if head.method == b"HEAD":
            # HEAD has the headers of GET, its length included (RFC 9110, 9.3.2).
            return reply[: reply.index(b"\r\n\r\n") + 4]
        return reply


def worker_metrics(store: Store) -> WorkerMetrics:
    """Return the metrics of a worker.

    Raises:
        ConfigError: The package is not installed.
    """
    try:
        from toolweave.cli._worker.metrics import WorkerMetrics  # an extra
    except ModuleNotFoundError:
        raise missing("prometheus-client", "metrics") from None
    return WorkerMetrics(store)


def _reply(status: int, body: bytes = b"", *, kind: str = _TEXT, headers: Iterable[str] = ()) -> bytes:
    return page_answer(status, body, ("Cache-Control: no-store", *headers), content_type=kind)
