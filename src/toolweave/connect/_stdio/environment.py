"""The inherited environment of a server process, and the lookup of its program.

Knows nothing of processes. Secrets are not inherited unless the config passes them.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from toolweave._files import exists, is_directory
from toolweave.config import without_user_info
from toolweave.errors import ConnectError

_INHERITED = frozenset(
    [
        "HOME",
        "LANG",
        "LANGUAGE",
        "LOGNAME",
        "PATH",
        "SHELL",
        "TERM",
        "TMPDIR",
        "TMP",
        "TEMP",
        "TZ",
        "USER",
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
        "NODE_EXTRA_CA_CERTS",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "NO_PROXY",
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "no_proxy",
        "APPDATA",
        "HOMEDRIVE",
        "HOMEPATH",
        "LOCALAPPDATA",
        "PATHEXT",
        "PROCESSOR_ARCHITECTURE",
        "PROGRAMFILES",
        "SYSTEMDRIVE",
        "SYSTEMROOT",
        "USERNAME",
        "USERPROFILE",
        "WINDIR",
    ]
)
_INHERITED_PREFIXES = ("LC_", "XDG_", "UV_", "PIP_", "NPM_CONFIG_", "npm_config_", "NVM_", "PYENV_", "VOLTA_")
_SENSITIVE = r"(?i)TOKEN|SECRET|PASS|CREDENTIAL|AUTH|API_?KEY|PRIVATE|(^|_)(OTP|KEY|PWD)($|_)"

_INSTALL_HINTS = {
    "npx": "install Node.js, which brings npx",
    "node": "install Node.js",
    "uvx": "install uv, which brings uvx (pip install uv)",
    "uv": "install uv (pip install uv)",
    "docker": "install Docker, and start it",
    "bunx": "install Bun, which brings bunx",
}


def inherited_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the part of the environment that a server process inherits.

    Paths, locale, certificates, proxies and package manager settings; nothing whose name looks like a secret. URLs, of
    proxies and package indexes, come without the user and password in them: a server that needs these gets them by
    its entry's `env`.
    """
    source = os.environ if environ is None else environ
    return {name: without_user_info(value) for name, value in source.items() if _is_inherited(name)}


def _is_inherited(name: str) -> bool:
    if name in _INHERITED:
        return True
    return name.startswith(_INHERITED_PREFIXES) and not re.search(_SENSITIVE, name)


def find_program(command: str, *, env: Mapping[str, str], cwd: str | None, server: str) -> str:
    """Return the path of the program to start, looked up on the server's own `PATH`.

    Raises:
        ConnectError: The program does not exist, or is not executable.
    """
    if cwd is not None and not is_directory(Path(cwd)):
        raise ConnectError(f"its working directory {cwd!r} does not exist; correct 'cwd'", server=server)
    if os.path.basename(command) == command:  # noqa: PTH119 - `Path` drops a last separator
        found = shutil.which(command, path=env.get("PATH"))
        if found is not None:
            return found
    else:
        path = Path(cwd or ".") / command
        found = shutil.which(str(path))
        if found is not None:
            return str(Path(found).absolute())
        if is_directory(path):
            raise ConnectError(f"its command {command!r} is a folder; name the program in it", server=server)
        if exists(path):
            raise ConnectError(f"its command {command!r} is not executable; run chmod +x on it", server=server)
    if " " in command.strip():
        hint = "put the program into 'command' and each argument into 'args'"
    else:
        hint = _INSTALL_HINTS.get(command, "install it, or give its full path in 'command'")
    raise ConnectError(f"its command {command!r} was not found; {hint}", server=server)
