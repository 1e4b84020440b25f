"""The call context of the code that runs now, for callers that cannot pass one: agents of other frameworks."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from toolweave.tools._call import NO_CONTEXT, CallContext

__all__ = ["ambient_context", "calling"]

_context: ContextVar[CallContext] = ContextVar("toolweave-call-context", default=NO_CONTEXT)


def ambient_context() -> CallContext:
    """Return the context that `calling` has set for this code, else one that holds nothing."""
    return _context.get()


@contextmanager
def calling(ctx: CallContext) -> Generator[None, None, None]:
    """Give every exported tool that is called in the block, in tasks and threads begun there too, this context.

    Blocks nest: an inner one replaces the values that it gives (`timeout`, `on_progress`, `state`, `caller`), and its
    `meta` is merged over the outer one's.
    """
    outer = _context.get()
    token = _context.set(
        CallContext(
            timeout=outer.timeout if ctx.timeout is None else ctx.timeout,
            on_progress=ctx.on_progress or outer.on_progress,
            meta={**outer.meta, **ctx.meta},
            state=ctx.state or outer.state,
            caller=outer.caller if ctx.caller is None else ctx.caller,
        )
    )
    try:
        yield
    finally:
        _context.reset(token)
