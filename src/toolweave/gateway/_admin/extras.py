"""The parts of a gateway that need optional packages, which are imported where they are wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolweave.errors import ConfigError
from toolweave.serve import Middleware

if TYPE_CHECKING:
    from toolweave.gateway._observe.metrics import PrometheusMetrics
    from toolweave.gateway._observe.tracing import SessionDurations


def prometheus_metrics() -> PrometheusMetrics:
    """Return the metrics, which count and measure requests.

    Raises:
        ConfigError: The package is not installed.
    """
    try:
        from toolweave.gateway._observe.metrics import PrometheusMetrics  # an extra
    except ModuleNotFoundError:
        raise missing("prometheus-client", "metrics") from None
    return PrometheusMetrics()


def spans_middleware() -> tuple[tuple[Middleware, ...], tuple[Middleware, ...], SessionDurations]:
    """Return the middleware that makes spans, the outermost and the innermost, and the recorder of session durations.

    Raises:
        ConfigError: The package is not installed.
    """
    try:
        from toolweave.gateway._observe.tracing import CallerSpans, SessionDurations, UpstreamSpans  # an extra
    except ModuleNotFoundError:
        raise missing("opentelemetry-api", "otel") from None
    return (CallerSpans(),), (UpstreamSpans(),), SessionDurations()


def missing(package: str, extra: str) -> ConfigError:
    """Return the error for a package that an extra brings."""
    return ConfigError(f"the package {package} is not installed: pip install 'toolweave[{extra}]'")
