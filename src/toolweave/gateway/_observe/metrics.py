"""Prometheus metrics of a gateway: `/metrics`, by the package prometheus-client.

Labels are methods, names of upstreams and tools from the catalogue, and a few words; never ids, URIs, arguments or
principals, and nothing that a caller can make up. Durations are by upstream and method, not by tool: a histogram of a
thousand tools would be megabytes.

Workers of one gateway keep their figures in files of one folder, `PROMETHEUS_MULTIPROC_DIR`, and the page of any of
them shows those of all.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, TypeAlias

import anyio
import anyio.to_thread
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from toolweave.gateway._observe.telemetry import BUCKETS, KNOWN_METHODS, outcome_of_error
from toolweave.middleware import RequestEnd
from toolweave.serve._http.asgi import Receive, Scope, Send, respond

if TYPE_CHECKING:
    from toolweave.gateway._admin.managed import ManagedGateway
    from toolweave.serve import HttpApp

_TEXT = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")
_WORKERS = "PROMETHEUS_MULTIPROC_DIR"
_FRESH_SECONDS = 5.0

Joined: TypeAlias = 'Literal["livesum", "livemin", "livemax"]'
"""The way in which the states of several workers become one number."""


class PrometheusMetrics:
    """Counts requests and measures them.

    Attributes:
        registry: The registry of all metrics of the gateway.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "toolweave_requests",
            "Requests by method, upstream and outcome.",
            ("method", "upstream", "outcome"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "toolweave_request_duration_seconds",
            "Time until the answer was there.",
            ("method", "upstream"),
            buckets=BUCKETS,
            registry=self.registry,
        )
        self._calls = Counter(
            "toolweave_tool_calls",
            "Tool calls by upstream, tool and outcome.",
            ("upstream", "tool", "outcome"),
            registry=self.registry,
        )

    def request_ended(self, end: RequestEnd) -> None:
        """Count a request."""
        # Callers send any method. Each new one would be a new time series, which Prometheus keeps.
        method = end.method if end.method in KNOWN_METHODS else "other"
        if end.exception is None:
            outcome = end.outcome
        else:
            outcome = outcome_of_error(end.exception)
        self._requests.labels(method, end.server, outcome).inc()
        self._seconds.labels(method, end.server).observe(end.seconds)
        if end.tool is not None:
            self._calls.labels(end.server, end.tool, outcome).inc()


class MetricsPage:
    """The page that Prometheus reads.

    Args:
        manager: The gateway.
        app: Its app, whose sessions and streams are counted.
        metrics: Its metrics.
    """

    def __init__(self, manager: ManagedGateway, app: HttpApp, metrics: PrometheusMetrics) -> None:
        self._manager = manager
        self._app = app
        self._registry = metrics.registry
        self._workers = bool(os.environ.get(_WORKERS))
        self._shown: set[tuple[str, str]] = set()
        self._state = self._gauge(
            "toolweave_upstream_state", "The workers in which an upstream is in a state.", "upstream", "state"
        )
        self._restarts = self._gauge("toolweave_upstream_restarts", "Reconnections of an upstream.", "upstream")
        self._tools = self._gauge("toolweave_upstream_tools", "Tools of an upstream.", "upstream", joined="livemax")
        self._in_flight = self._gauge("toolweave_requests_in_progress", "Requests under way.")
        self._sessions = self._gauge("toolweave_sessions", "Open sessions of clients of older revisions.")
        self._streams = self._gauge("toolweave_open_streams", "Open streams of notifications.")
        self._held = self._gauge("toolweave_held", "Limited resources that callers hold, by kind.", "kind")
        self._refused_callers = self._gauge("toolweave_refused", "Callers that were refused more, by kind.", "kind")
        self._evicted = self._gauge("toolweave_evicted", "Resources taken from the caller that held the most.", "kind")
        self._retiring = self._gauge("toolweave_upstreams_retiring", "Removed upstreams that still answer requests.")
        self._generation = self._gauge(
            "toolweave_config_generation", "The number of the config in use.", joined="livemax"
        )
        self._refused = self._gauge(
            "toolweave_config_refused", "1 while the last change of the config is refused.", joined="livemax"
        )
        self._not_applied = self._gauge(
            "toolweave_config_not_applied",
            "1 while the new settings of an upstream fail.",
            "upstream",
            joined="livemax",
        )
        self._ready = self._gauge("toolweave_ready", "1 while the gateway is ready.", joined="livemin")
        if manager.runs is None:
            self._queue = None
        else:
            from toolweave.gateway._observe.queue_metrics import QueueMetrics  # it loads agents

            self._queue = QueueMetrics(self._registry, manager.runs.store)

    def _gauge(self, name: str, text: str, *labels: str, joined: Joined = "livesum") -> Gauge:
        return Gauge(name, text, labels, registry=self._registry, multiprocess_mode=joined)

    async def keep_fresh(self) -> None:
        """Copy the figures that are counted elsewhere every few seconds: another worker may serve the page."""
        while self._workers:
            await self._read_all()
            await anyio.sleep(_FRESH_SECONDS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["method"] not in ("GET", "HEAD"):
            await respond(send, 405, "Method Not Allowed", [(b"allow", b"GET, HEAD")])
            return
        await self._read_all()
        # many milliseconds for many tools
        body = await anyio.to_thread.run_sync(self._rendered)
        headers = [_TEXT, (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _rendered(self) -> bytes:
        if not self._workers:
            return generate_latest(self._registry)
        joined = CollectorRegistry()
        MultiProcessCollector(joined)
        return generate_latest(joined)

    async def _read_all(self) -> None:
        self._read()
        if self._queue is not None:
            await self._queue.refresh()

    def _read(self) -> None:
        """Copy the figures that are counted elsewhere; upstreams that are gone are removed, or are in no worker."""
        status = self._manager.status()
        now = {(one.name, one.state) for one in status.upstreams}
        if self._workers:  # labels cannot be removed from files
            for name, state in self._shown - now:
                self._state.labels(name, state).set(0)
            self._shown |= now
        else:
            # A gauge of an upstream that was removed would show its last value for ever.
            for gauge in (self._state, self._restarts, self._tools, self._not_applied):
                gauge.clear()
        for one in status.upstreams:
            self._state.labels(one.name, one.state).set(1)
            self._restarts.labels(one.name).set(one.restarts)
            self._tools.labels(one.name).set(one.tools)
            self._not_applied.labels(one.name).set(one.not_applied is not None)
        self._in_flight.set(status.requests)
        self._sessions.set(self._app.sessions)
        self._streams.set(self._app.streams + self._manager.in_flight.streams)
        for kind, figures in self._app.shares.figures.items():
            self._held.labels(kind).set(figures.held)
            self._refused_callers.labels(kind).set(figures.refused)
            self._evicted.labels(kind).set(figures.evicted)
        self._retiring.set(status.retiring)
        self._generation.set(status.generation)
        self._refused.set(status.problem is not None)
        self._ready.set(status.ready)
