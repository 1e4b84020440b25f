"""The types of a server's options: a wrong one is refused where it is given, with the type to pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import get_args

from toolweave._option_checks import (
    COUNT,
    FLAG,
    SECRETS,
    TEXT,
    TEXTS,
    OptionKind,
    check_choice,
    check_kinds,
    instance_of,
    type_error,
)
from toolweave.jobs import WorkBackend
from toolweave.serve._option_kinds import PAGE_SIZE
from toolweave.serve._sampling import AnswersSampling
from toolweave.serve._sessions import SessionRules
from toolweave.serve._tools import ExposeErrors
from toolweave.state.checks import STORE

_KINDS: Mapping[str, OptionKind] = {
    "instructions": TEXT.or_none,
    "page_size": PAGE_SIZE,
    "repair_arguments": FLAG,
    "ttl_ms": COUNT._replace(shown="a whole number of milliseconds"),
    "tasks": instance_of(Mapping, "a mapping of tool names to rules"),
    "store": STORE.or_none,
    "backend": instance_of(WorkBackend, "a backend, such as Backend(url)").or_none,
    "logging": FLAG,
    "request_state_keys": SECRETS.or_none,
    "sampling": instance_of(AnswersSampling, "SamplingModel(model)").or_none,
    "sessions": instance_of(SessionRules, "SessionRules(...)"),
}


def _is_name_list(value: object) -> bool:
    # One text is one name; an iterator is read later, once.
    return TEXT.fits(value) or TEXTS.fits(value) or isinstance(value, Iterator)


_NAMES = OptionKind(_is_name_list, "a list of strings")
_OFFERS: Mapping[str, OptionKind] = {
    "name": TEXT,
    "version": TEXT,
    **dict.fromkeys(("include", "exclude", "include_tags", "exclude_tags"), _NAMES),
    "versions": TEXT.or_none,
}
_CHOICES: Mapping[str, Sequence[object]] = {
    "cache_scope": ("private", "public"),
    "expose_errors": (*get_args(ExposeErrors), None),  # a slip must not unmask
}


def check_option_types(options: object) -> None:
    """Validate the types of a server's options, and the words among them.

    Raises:
        TypeError: An option has another type.
        ValueError: An option has another value than its few.
    """
    check_kinds(options, _KINDS)
    for option, choices in _CHOICES.items():
        check_choice(option, getattr(options, option), choices)


def check_offers(**options: object) -> None:
    """Check the options that say which offers a server has: a tag or a name of another type would leave nothing out.

    Raises:
        TypeError: An option has another type.
    """
    check_kinds(options, _OFFERS)


def check_auth(auth: object) -> None:
    """Check an `auth`; None passes.

    Raises:
        TypeError: It is not an authorization. It would be found out at the first request, or never.
    """
    if auth is None:
        return
    from toolweave.serve._auth.token_auth import TokenAuth  # only where callers are judged

    if not isinstance(auth, TokenAuth):
        raise type_error("auth", auth, "an authorization, such as ApiKeyAuth(...), JwtAuth(...) or OAuthServer(...)")
