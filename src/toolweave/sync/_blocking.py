"""Conversion of async functions and methods to blocking ones, with the types of the originals."""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

from toolweave.tools._portal import PORTAL

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
S_contra = TypeVar("S_contra", contravariant=True)
V_co = TypeVar("V_co", covariant=True)


class Facade(Protocol[V_co]):
    """A blocking wrapper of an async object."""

    @property
    def wrapped(self) -> V_co:
        """The async object."""
        ...


class _Forwarding(ABC, Generic[S_contra, P, T]):
    """Descriptor of a facade's method that forwards to a method of the wrapped object, with its parameters."""

    def __init__(self, method: Callable[Concatenate[S_contra, P], Any]) -> None:
        self._original = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, facade: None, owner: type) -> Callable[..., T]: ...
    @overload
    def __get__(self, facade: Facade[S_contra], owner: type) -> Callable[P, T]: ...
    def __get__(self, facade: Facade[S_contra] | None, owner: type) -> Callable[..., T]:
        def method(facade: Facade[S_contra], *args: P.args, **kwargs: P.kwargs) -> T:
            return self._forward(facade.wrapped, *args, **kwargs)

        functools.update_wrapper(method, self._original)  # for `help()`
        if facade is None:
            return method
        return MethodType(method, facade)

    @abstractmethod
    def _forward(self, wrapped: S_contra, *args: P.args, **kwargs: P.kwargs) -> T: ...


class forwarded(_Forwarding[S_contra, P, T]):  # noqa: N801 - used like a decorator
    """A method of the wrapped object whose result is converted by `make`."""

    def __init__(self, method: Callable[Concatenate[S_contra, P], R], make: Callable[[R], T]) -> None:
        super().__init__(method)
        self._call: Callable[Concatenate[S_contra, P], T] = lambda wrapped, *args, **kwargs: make(
            method(wrapped, *args, **kwargs)
        )

    def _forward(self, wrapped: S_contra, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._call(wrapped, *args, **kwargs)


class blocking(_Forwarding[S_contra, P, T]):  # noqa: N801 - the same
    """An async method of the wrapped object as a blocking one: `call_tool = blocking(McpConnection.call_tool)`."""

    def __init__(self, method: Callable[Concatenate[S_contra, P], Awaitable[T]]) -> None:
        super().__init__(method)
        self._method = method

    def _forward(self, wrapped: S_contra, *args: P.args, **kwargs: P.kwargs) -> T:
        return PORTAL.run(lambda: self._method(wrapped, *args, **kwargs))


def with_signature_of(original: Callable[P, Any]) -> Callable[[Callable[..., T]], Callable[P, T]]:
    """Give a function the parameters of another, for type checkers and for `help()`."""

    def sign(function: Callable[..., T]) -> Callable[P, T]:
        own = inspect.signature(function).return_annotation
        function.__signature__ = inspect.signature(original).replace(return_annotation=own)  # type: ignore[attr-defined]
        return function

    return sign
