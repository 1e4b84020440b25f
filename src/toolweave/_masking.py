"""The masking of secrets by their values, in texts and in JSON values, however the text spells them.

A secret that a config holds in the clear returns in other forms: escaped in JSON, in a URL, in HTML, quoted for a
shell, or inside base64. Knows no config, only values and texts.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

MASK = "***"
"""The text shown instead of a secret."""
MIN_SECRET_LENGTH = 4
"""A shorter value that is found in a foreign text is more likely a coincidence than a leak."""
SERVICE_PREFIX = (
    r"(?<![A-Za-z0-9])(?:gh[oprsu]_\w+|github_pat_\w+|glpat-[\w-]+|xox[a-z]-[\w-]+|sk-(?=[\w-]*[A-Z0-9])[\w-]{6,}"
    r"|A[KS]IA[A-Z0-9]{8,}|eyJ[\w-]{8,}(?:\.[\w-]*)*)"
)
"""A pattern of the tokens that begin like those of a known service."""

_MIN_ENCODED_LENGTH = 6
"""Fewer bytes leave too few characters of base64 to recognize a value inside a longer one."""
_LETTERS = re.compile(r"[A-Za-z0-9]+")
_BASE64_CHARACTER = "[A-Za-z0-9+/_-]"
_HTML_NAMES = {'"': "quot", "&": "amp", "<": "lt", ">": "gt", "'": "apos"}
_BACKSLASHES = r"(?<!\\)(?:\\|(?i:u005c|x5c|%(?:25)*5c|&(?:amp;)*\#x0*5c;)|&(?:amp;)*\#0*92;)++"
"""A pattern of one or more backslashes in any of their forms, as many as there are."""
_ESCAPED_CONTROLS = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}


def mask_values(text: str, values: Iterable[str]) -> str:
    """Return the text with every one of the values replaced by the mask, longest first.

    A value of at least four characters is also found in its escaped and encoded forms.
    """
    for value in sorted({value for value in values if value}, key=len, reverse=True):
        text = text.replace(value, MASK)
        if len(value) >= MIN_SECRET_LENGTH:
            text = _mask_escaped(text, value)
            text = _mask_encoded(text, value)
    return text


def mask_foreign(text: str, values: Iterable[str]) -> str:
    """Return a text that others wrote with the values replaced that are long enough to be no coincidence."""
    return mask_values(text, (value for value in values if len(value) >= MIN_SECRET_LENGTH))


def mask_tokens(text: str) -> str:
    """Return a text with the tokens masked that begin like those of a known service, such as `ghp_X`."""
    return re.sub(SERVICE_PREFIX, MASK, text)


def mask_json(value: Any, redact: Callable[[str], str], shown: Callable[[object], Any] = lambda other: other) -> Any:
    """Return a JSON value with `redact` applied to every text in it, names of members included.

    Args:
        value: A JSON value; tuples count as arrays.
        redact: Masks the secrets in a text.
        shown: Returns what stands for a value that is not a text, an object or an array.
    """
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        members = cast("Mapping[Any, Any]", value)
        return {redact(str(name)): mask_json(item, redact, shown) for name, item in members.items()}
    if isinstance(value, (list, tuple)):
        return [mask_json(item, redact, shown) for item in cast("list[Any]", value)]
    return shown(value)


def _mask_escaped(text: str, value: str) -> str:
    """Mask a value with its special characters escaped, each in any of its ways, because encoders differ."""
    if value.isascii() and value.isalnum():
        return text
    longest = max(_LETTERS.findall(value), key=len, default="")
    if longest not in text:  # letters and digits stay as they are in every form
        return text
    return re.sub(_any_form(value), MASK, text)


def _any_form(value: str) -> str:
    """Return a pattern of a value and its escaped forms in JSON, Python, URLs, HTML and shells.

    The texts are foreign, so no part of the pattern can match one text in two ways: the time stays linear. A run of
    backslashes is one part, which takes all backslashes of the text and those that escape the next character; the part
    of a character without a run before it begins where no backslash stands before.
    """
    parts: list[str] = []
    after_run = False
    for found in re.finditer(r"\\+|[^\\]", value):
        piece = found.group()
        is_run = piece.startswith("\\")
        parts.append(_BACKSLASHES if is_run else _any_form_of(piece, after_run=after_run))
        after_run = is_run
    return "".join(parts)


def _any_form_of(char: str, *, after_run: bool) -> str:
    """Return a pattern of a character, other than a backslash, and its escaped forms.

    Args:
        char: The character.
        after_run: Whether the pattern before has taken the backslashes that may escape the character.
    """
    if char.isascii() and char.isalnum():
        return char
    code = ord(char)
    percent = "".join(f"%(?:25)*{byte:02x}" for byte in char.encode("utf-8", "surrogatepass"))
    units = char.encode("utf-16-be", "surrogatepass").hex()
    unicode = r"\\++".join(f"u{units[at : at + 4]}" for at in range(0, len(units), 4))
    escaped = [f"(?i:{unicode})", f"(?i:U{code:08x})"]
    if code < 256:
        escaped.append(f"(?i:x{code:02x})")
    if char in _ESCAPED_CONTROLS:
        escaped.append(_ESCAPED_CONTROLS[char])
    forms = [f"(?i:{percent})", rf"(?i:&(?:amp;)*\#x0*{code:x};)", rf"&(?:amp;)*\#0*{code};"]
    if char in _HTML_NAMES:
        forms.append(f"&(?:amp;)*{_HTML_NAMES[char]};")
    if char == " ":
        forms.append(r"\+")
    if char == "'":
        forms += [r"'\\++''", """'"'"'"""]
    after_backslashes = "|".join(escaped)
    if after_run:
        forms += [after_backslashes, re.escape(char)]
    else:
        forms += [rf"(?<!\\)\\++(?:{after_backslashes}|{re.escape(char)})", re.escape(char)]
    return f"(?>{'|'.join(forms)})"


def _mask_encoded(text: str, value: str) -> str:
    """Mask a value in base64, alone or inside something longer, and in hexadecimal digits."""
    data = value.encode("utf-8", "surrogatepass")
    if len(data) < _MIN_ENCODED_LENGTH:
        alone = base64.b64encode(data).decode().rstrip("=")
        return _without_core(text, alone, rf"(?<!{_BASE64_CHARACTER}){{}}={{{{0,2}}}}(?!{_BASE64_CHARACTER})")
    # Base64 writes three bytes as four characters. Inside something longer, a value may begin at any of the three, so
    # it has three encodings. The first and the last character of each also hold bits of the bytes around the value and
    # differ from text to text: the core between them is searched, and masked together with these two.
    for offset in range(3):
        encoded = base64.b64encode(b"\0" * offset + data).decode().rstrip("=")
        start = 0
        before = ""
        if offset > 0:
            start = offset + 1
            before = f"{_BASE64_CHARACTER}?"
        end = len(encoded)
        if (offset + len(data)) % 3 != 0:
            end -= 1
        text = _without_core(text, encoded[start:end], f"{before}{{}}{_BASE64_CHARACTER}?={{{{0,2}}}}")
    digits = data.hex()
    return text.replace(digits, MASK).replace(digits.upper(), MASK)


def _without_core(text: str, core: str, around: str) -> str:
    """Mask base64 text in both alphabets; `around` is a pattern with a field for the text."""
    for form in {core, core.replace("+", "-").replace("/", "_")}:
        if form in text:
            text = re.sub(around.format(re.escape(form)), MASK, text)
    return text
