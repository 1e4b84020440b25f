"""An API that an OpenAPI document describes, or an ASGI application in this process, as a toolset.

Depends on HTTP, schemas and tools, not on MCP, servers or models.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolweave.openapi._asgi import AsgiApp
    from toolweave.openapi._credentials import ApiAuth
    from toolweave.openapi._operations import OPERATION_META, OperationProblem
    from toolweave.openapi._resources import ApiResources
    from toolweave.openapi._results import NEXT_PAGE_META
    from toolweave.openapi._toolset import ApiSource, OpenApiOptions, OpenApiToolset, openapi_tools
else:
    from toolweave._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "_asgi": ("AsgiApp",),
            "_credentials": ("ApiAuth",),
            "_operations": ("OPERATION_META", "OperationProblem"),
            "_resources": ("ApiResources",),
            "_results": ("NEXT_PAGE_META",),
            "_toolset": ("ApiSource", "OpenApiOptions", "OpenApiToolset", "openapi_tools"),
        },
    )

__all__ = [
    "NEXT_PAGE_META",
    "OPERATION_META",
    "ApiAuth",
    "ApiResources",
    "ApiSource",
    "AsgiApp",
    "OpenApiOptions",
    "OpenApiToolset",
    "OperationProblem",
    "openapi_tools",
]
