"""The secrets in arguments, URLs and options, found by names and by forms, however deep they are encoded.

An argument may be JSON, percent-encoded, base64, a command line, or one of these inside another. Each layer is read and
its secrets are collected, then the collected values are masked in the argument. If one of them cannot be found in the
text, because it is escaped in an unusual way, the whole argument is masked.
"""

from __future__ import annotations

import base64
import binascii
import re
import shlex
from collections.abc import Callable, Sequence
from urllib.parse import parse_qsl, quote, unquote, urlsplit, urlunsplit

import msgspec

from toolweave._json import decode_json
from toolweave._json_types import Json, JsonObject, as_object, as_sequence
from toolweave._masking import MASK, SERVICE_PREFIX, mask_values
from toolweave.config._secret import Secret, looks_secret

__all__ = ["Hide", "mask_args", "mask_options", "mask_url", "secrets_in", "secrets_in_options", "without_user_info"]

_URL = r"[A-Za-z][A-Za-z0-9+.-]*://"
_USER_INFO = r"(?<=://)[^/\s@]*@"
_USER_AT_HOST = r"^(?!(?:npm|jsr|github|gitlab|git|file|pypi):)[^\s:@/]+:(?!\d+/)[^@\s]+@(?!sha256:)"
"""`user:password@host`, but not packages (`npm:name@1.0`) and images (`host:5000/name@...`, `name:tag@sha256:...`)."""
_PORT_OR_PATH = r"(?s)(?:[\d.]+:)*\d+(?:-\d+)?(?::\d+(?:-\d+)?)?(?:/(?:tcp|udp))?|[~.]|.*[/\\].*|@.*"
"""A number, a port or ports of a container, a path, a scoped package."""
_FLAG = r"(?s)(--?[A-Za-z][\w.-]*)(=?)(.*)"
_OPTION = r"(?s)--?[A-Za-z]{1,24}\d?(?:[-_.][A-Za-z]{1,24}\d?){0,8}(?:=.*)?"
_HEADER_ARGUMENT = r"(?s)([A-Za-z][\w-]*): *(.+)"
_MAX_DEPTH = 6
"""The maximum of nested encodings. A text with more is masked as a whole."""
_BASE64 = r"[A-Za-z0-9+/_-]{8,}={0,2}"
_LOGIN = r"""(?s)[^\s:{}\[\]"'/]+:(?!//)(\S.*)"""
_LOOSE_VALUE = r"""(?P<value>\\*"(?:[^"\\]|\\.)*"?|'[^']*'?|[^\s"',;&{}\[\]]+)"""
_LOOSE_MEMBER = r"""(?P<name>[\w.$-]{1,80})(?:\\*["']\s*[:=]\s*|\s*=\s*|:\s*)""" + _LOOSE_VALUE
"""A member of an object in JSON5, YAML or TOML, or of a Python dictionary."""
_LOOSE_LINE = r"""(?m)^\s*(?P<name>[\w.$-]{1,80})(?:\s*=\s*|:\s+)""" + _LOOSE_VALUE
_NAMING_MEMBERS = ("name", "key", "header")
_PLAIN_MEMBERS = frozenset(
    {"type", "kind", "scheme", "method", "name", "title", "description", "header", "headerName", "url", "issuer"}
)
"""Members that describe a credential. All others under a secret name are secret."""

Hide = Callable[[str], str]
"""Returns the replacement for a secret."""


def _masked(value: str) -> str:
    return MASK


def without_user_info(text: str) -> str:
    """Return a text with the user info taken out of the URLs in it."""
    return re.sub(_USER_INFO, "", text)


def mask_args(args: Sequence[str], hide: Hide = _masked) -> tuple[str, ...]:
    """Return the arguments with the values of secret-looking flags, headers, members and URLs masked.

    Covers `--token X`, `--token=X`, `-e API_KEY=X`, `API_KEY=X`, `Authorization: X` and URLs, and any of these
    behind a flag: `--env=API_KEY=X`, `--header=Authorization: X`. Without a telling name `user:X@host` is covered,
    `-p X` unless X is a port or a path, and tokens with the prefix of a known service, such as `ghp_X`. All of it is
    also found in JSON, in command lines, and in percent-encoded and base64 texts. `hide` returns the replacement for
    each secret.
    """
    return _mask_words(args, hide, 0, bare_password=True)


def mask_url(url: str, hide: Hide = _masked) -> str:
    """Return the URL without its user info, and with the secrets in its path, query and fragment masked.

    A text that is not a URL becomes the mask alone when it may hold user info, else it is unchanged. `hide` returns
    the replacement for each secret.
    """
    return _mask_url(url, hide, 0)


def mask_options(value: object, hide: Hide = _masked) -> object:
    """Return the value of an option with the secrets in it masked, at any depth."""
    return _mask_value(value, hide, 0, secret=False)


def secrets_in(args: Sequence[str]) -> tuple[str, ...]:
    """Return the secrets that `mask_args` hides, each also without its scheme (`Bearer X`) or user name."""
    noted = _Notes()
    mask_args(args, noted)
    return noted.values()


def secrets_in_options(options: JsonObject) -> tuple[str, ...]:
    """Return the secrets that `mask_options` hides, like `secrets_in`."""
    noted = _Notes()
    mask_options(options, noted)
    return noted.values()


class _Notes:
    """A `Hide` that collects the secrets."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def __call__(self, value: str) -> str:
        if value not in ("", MASK):  # what is masked already is found and needs no search
            self.found.append(value)
        return MASK

    def values(self) -> tuple[str, ...]:
        """Return the secrets, and the parts of them that a program may repeat: without scheme or user, decoded."""
        texts: dict[str, None] = {}
        for value in self.found:
            _, _, behind_scheme = value.partition(" ")
            _, _, password = value.partition(":")
            for part in (value, behind_scheme, password):
                texts |= dict.fromkeys((part, unquote(part)))
        return tuple(filter(None, texts))


def _mask_words(words: Sequence[str], hide: Hide, depth: int, *, bare_password: bool) -> tuple[str, ...]:
    shown: list[str] = []
    hide_next = False
    for number, word in enumerate(words):
        flag = re.fullmatch(_FLAG, word)
        if hide_next and not _is_option(word):
            # the whole value is masked, but a program may repeat a secret inside it alone
            _mask_argument(word, hide, depth)
            shown.append(hide(word))
            hide_next = False
            continue
        is_bare_flag = flag is not None and word == flag[1]  # its value is the next word
        hide_next = is_bare_flag and looks_secret(word)
        if word == "-p" and bare_password:
            hide_next = number + 1 < len(words) and _may_be_password(words[number + 1], words[:number])
        shown.append(_mask_argument(word, hide, depth))
    return tuple(shown)


def _is_option(word: str) -> bool:
    """Return whether a word behind `--token` is the next option, and not a value that begins with a dash.

    Options are words: letters in groups, each perhaps with a digit at its end. A random token, such as one of base64
    for URLs, has digits among its letters.
    """
    return re.fullmatch(_OPTION, word) is not None


def _mask_argument(arg: str, hide: Hide, depth: int) -> str:
    if re.match(_URL, arg):
        return _mask_url(arg, hide, depth)
    # The most specific form first: a header and an assignment have a name that decides, the rest is found by its form.
    # Where the whole value is masked, its layers are still read, so that `hide` learns the secrets inside.
    header = re.fullmatch(_HEADER_ARGUMENT, arg.lstrip("-"))
    if header and looks_secret(header[1]):
        _mask_layers(arg, hide, depth)
        return f"{arg[: -len(header[2])]}{hide(header[2])}"
    name, _, value = arg.partition("=")
    is_assignment = value.strip("=") != ""  # and not the padding of base64
    if is_assignment and re.search(r"[\s&;{\[]", name) is None:
        if not looks_secret(name):
            return f"{name}={_mask_argument(value, hide, depth)}"
        _mask_layers(arg, hide, depth)
        return f"{name}={hide(value)}"
    layers = _mask_layers(arg, hide, depth)
    if layers is not None:
        return layers
    arg = re.sub(_USER_INFO, lambda found: f"{hide(found[0][:-1])}@", arg)
    arg = re.sub(_USER_AT_HOST, lambda found: f"{hide(found[0][:-1])}@", arg)
    return re.sub(SERVICE_PREFIX, lambda found: hide(found[0]), arg)


def _may_be_password(value: str, before: Sequence[str]) -> bool:
    """Return whether the value of `-p` may be a password: no port, no path and no package of `npx -y -p`."""
    if "-y" in before or "--yes" in before:
        return False
    return re.fullmatch(_PORT_OR_PATH, value) is None


def _mask_url(url: str, hide: Hide, depth: int) -> str:
    # Each part is masked by itself and the URL is put together again only if one changed: parsing loses details of its
    # spelling, such as an empty query, that the server may need.
    try:
        parts = urlsplit(url)
        query = _mask_query(parts.query, hide, depth)
        if "=" in parts.fragment:
            fragment = _mask_query(parts.fragment, hide, depth)
        else:
            fragment = parts.fragment
    except ValueError:
        if "@" in url or "?" in url:
            return hide(url)
        return url
    netloc = parts.netloc
    if "@" in netloc:
        info, _, host = netloc.rpartition("@")
        netloc = f"{hide(info)}@{host}"
    path = re.sub(SERVICE_PREFIX, lambda found: hide(found[0]), parts.path)
    shown = (netloc, path, query, fragment)
    if shown == (parts.netloc, parts.path, parts.query, parts.fragment):
        return url
    return urlunsplit((parts.scheme, *shown))


def _mask_query(query: str, hide: Hide, depth: int) -> str:
    shown: list[tuple[str, str]] = []
    changed = False
    for name, value in parse_qsl(query, keep_blank_values=True):
        if looks_secret(name):
            masked = hide(value)
        else:
            masked = _mask_argument(value, hide, depth + 1)
        if masked != value:
            changed = True
        shown.append((name, masked))
    if not changed:  # the query stays as it is written, which encoding it again may not keep
        return query
    return "&".join(f"{quote(name)}={quote(value, safe='*/:')}" for name, value in shown)


def _mask_value(value: object, hide: Hide, depth: int, *, secret: bool) -> object:
    """Mask the secrets in a JSON value; `secret` is whether it stands under a secret name."""
    if isinstance(value, Secret):
        hide(value.reveal())
        return value
    if isinstance(value, str):
        if not secret:
            return _mask_argument(value, hide, depth)
        _mask_layers(value, hide, depth)
        if value:
            return hide(value)
        return value
    members = as_object(value)
    if members is not None:
        return _mask_members(members, hide, depth, secret=secret)
    items = as_sequence(value)
    if items is not None:
        return _mask_items(items, hide, depth, secret=secret)
    if isinstance(value, bool):
        return value
    if secret and isinstance(value, (int, float)):
        return hide(str(value))
    return value


def _mask_items(items: Sequence[object], hide: Hide, depth: int, *, secret: bool) -> list[object]:
    words = [item for item in items if isinstance(item, str)]
    # as a command line has them: a flag may stand before its value
    if len(words) == len(items) and not secret:
        return list(_mask_words(words, hide, depth, bare_password=False))
    return [_mask_value(item, hide, depth, secret=secret or _is_header(item)) for item in items]


def _mask_members(members: JsonObject, hide: Hide, depth: int, *, secret: bool) -> Json:
    shown: Json = {}
    for key, value in members.items():
        name = str(key)
        shown[name] = _mask_value(value, hide, depth, secret=_is_secret(name, members, secret=secret))
    return shown


def _is_secret(name: str, members: JsonObject, *, secret: bool) -> bool:
    """Return whether a member holds a secret; `secret` is whether the object stands under a secret name."""
    if "value" in members and name in _NAMING_MEMBERS:  # {"key": "API_KEY", "value": "..."}
        return False
    if looks_secret(name):
        return True
    if secret:
        return name not in _PLAIN_MEMBERS
    return name == "value" and _names_secret(members)


def _names_secret(members: JsonObject) -> bool:
    names = (members.get(key) for key in _NAMING_MEMBERS)
    return any(looks_secret(name) for name in names if isinstance(name, str))


def _is_header(item: object) -> bool:
    """Return whether a value is the pair of a secret-looking name and its value, as lists of headers have it."""
    pair = as_sequence(item)
    if pair is None or len(pair) != 2:
        return False
    name, value = pair
    if not isinstance(value, str) or not isinstance(name, str):
        return False
    return looks_secret(name)


def _mask_layers(text: str, hide: Hide, depth: int) -> str | None:
    """Mask the secrets in a text that holds another form inside; None if nothing is found in it."""
    noted = _Notes()
    # The bound ends the recursion for a text that was made to nest: each layer may be read by all five readers. Masking
    # all of it is the safe side, since nothing in it was looked at.
    if depth >= _MAX_DEPTH:
        return hide(text)
    # Every reader gets the text, as one may be JSON and a command line at once. They note secrets and change nothing.
    for read in (_read_json, _read_loose_json, _read_percent, _read_base64, _read_command):
        read(text, noted, depth + 1)
    if not noted.found:
        return None
    for value in noted.found:
        hide(value)
    # A secret that is decoded but not found in the text is written there in another way, and would stay visible.
    if any(mask_values(text, [value]) == text for value in noted.found):
        return hide(text)
    return mask_values(text, noted.found)


def _read_json(text: str, hide: Hide, depth: int) -> None:
    if text.strip()[:1] not in ("{", "[", '"'):
        return
    try:
        value = decode_json(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return
    _mask_value(value, hide, depth, secret=False)


def _read_loose_json(text: str, hide: Hide, depth: int) -> None:
    """Find the members of text like JSON, such as YAML, and duplicate members of JSON."""
    if text.strip()[:1] in ("{", "["):
        pattern = _LOOSE_MEMBER
    elif "\n" in text:
        pattern = _LOOSE_LINE
    else:
        return
    for found in re.finditer(pattern, text):
        value = found["value"].strip("\\\"'")
        is_plain = value != "" and value[0] not in "{["
        if is_plain and looks_secret(found["name"]):
            hide(value)


def _read_percent(text: str, hide: Hide, depth: int) -> None:
    decoded = unquote(text) if "%" in text else text
    if decoded != text:
        _mask_argument(decoded, hide, depth)


def _read_base64(text: str, hide: Hide, depth: int) -> None:
    """Find secrets in base64 that holds a text; then the base64 is secret as a whole."""
    # Nearly every word of eight letters is base64 of something. Only one that decodes to a readable text counts.
    if re.fullmatch(_BASE64, text) is None:
        return
    plain = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        decoded = base64.b64decode(plain + "=" * (-len(plain) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError):
        return
    if not decoded.replace("\n", " ").isprintable():
        return
    noted = _Notes()
    login = re.fullmatch(_LOGIN, decoded)
    if login:
        noted(login[1])
    _mask_argument(decoded, noted, depth)
    if noted.found:
        for value in (*noted.found, text):
            hide(value)


def _read_command(text: str, hide: Hide, depth: int) -> None:
    if re.search(r"[\s&;|]", text) is None or text.strip()[:1] in ("{", "["):
        return
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    # A `#` may be part of a URL or a password, and what follows it has to be read.
    lexer.commenters = ""
    try:
        words = list(lexer)
    except ValueError:  # a quote without its partner
        words = text.split()
    if len(words) > 1:
        _mask_words(words, hide, depth, bare_password=False)
