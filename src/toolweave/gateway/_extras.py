"""The parts of a gateway that need optional packages, which are imported where they are wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolweave.errors import ConfigError
from toolweave.serve._request import Middleware

if TYPE_CHECKING:
    from toolweave.gateway._metrics import PrometheusMetrics

__all__ = ["metrics_middleware", "spans_middleware"]


def metrics_middleware() -> PrometheusMetrics:
    """Return the middleware that counts and measures.

    Raises:
        ConfigError: The package is not installed.
    """
    try:
        from toolweave.gateway._metrics import PrometheusMetrics  # an extra
    except ModuleNotFoundError:
        raise _missing("prometheus-client", "metrics") from None
    return PrometheusMetrics()


def spans_middleware() -> tuple[tuple[Middleware, ...], tuple[Middleware, ...]]:
    """Return the middleware that makes spans: the outermost, and the innermost.

    Raises:
        ConfigError: The package is not installed.
    """
    try:
        from toolweave.gateway._tracing import CallerSpans, UpstreamSpans  # an extra
    except ModuleNotFoundError:
        raise _missing("opentelemetry-api", "otel") from None
    return (CallerSpans(),), (UpstreamSpans(),)


def _missing(package: str, extra: str) -> ConfigError:
    return ConfigError(f"the package {package} is not installed: pip install 'toolweave[{extra}]'")
