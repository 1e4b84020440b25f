"""The kinds of options that several tables of `serve` and `gateway` have, with the words of their errors."""

from __future__ import annotations

from toolweave._option_checks import COUNT, instance_of
from toolweave.config import Secret

SECRET_TEXT = instance_of((str, Secret), "a string or a Secret")
PAGE_SIZE = COUNT.or_none._replace(shown="a whole number, or None for one page")
