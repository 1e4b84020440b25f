# Shared by the scripts beside it: find a Python, keep .venv current. Sourced, never run.
# shellcheck shell=bash
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT"
# Bytecode is kept even where the environment forbids it: without it every process that a test or a benchmark starts
# compiles the package again, which is a third of its CPU time, and pytest rewrites all test modules in every worker.
unset PYTHONDONTWRITEBYTECODE
VENV=${TOOLWEAVE_VENV:-$ROOT/.venv}
PYTHON=$VENV/bin/python

fail() {
    printf '%s: %s\n' "$(basename "$0")" "$1" >&2
    exit 2
}

# The newest Python >= 3.11 on PATH.
find_python() {
    local candidate
    for candidate in python3.14 python3.13 python3.12 python3.11 python3; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

make_venv() { # DIRECTORY
    local python
    python=$(find_python) || python=
    if command -v uv >/dev/null 2>&1; then
        uv venv --quiet --python "${python:->=3.11}" "$1"
    elif [ -z "$python" ]; then
        fail "no Python 3.11 or newer on PATH; install one, or install uv (https://docs.astral.sh/uv/) which brings its own"
    else
        "$python" -m venv "$1" || fail "$python cannot make a virtual environment; install its venv package (Debian: python3-venv) or uv"
    fi
}

pip_install() { # DIRECTORY ARGUMENTS...
    local venv=$1
    shift
    if command -v uv >/dev/null 2>&1; then
        uv pip install --quiet --compile-bytecode --python "$venv/bin/python" --constraint constraints.txt "$@"
    else
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --constraint constraints.txt "$@"
    fi
}

# Make .venv hold the package (editable) and, for `dev`, everything a contributor needs.
# Nothing is done while pyproject.toml and constraints.txt are the ones of the last time.
ensure_venv() { # run | dev
    local want=$1 hash stamp=$VENV/.toolweave-stamp
    hash=$(cat pyproject.toml constraints.txt | cksum)
    if [ -x "$PYTHON" ] && [ -f "$stamp" ]; then
        case "$(cat "$stamp")" in
            "dev $hash" | "$want $hash") return ;;
        esac
    fi
    echo "setting up ${VENV#"$ROOT"/} ..." >&2
    [ -x "$PYTHON" ] || make_venv "$VENV"
    if [ "$want" = dev ]; then
        pip_install "$VENV" --editable '.[dev]'
    else
        pip_install "$VENV" --editable .
    fi
    echo "$want $hash" >"$stamp"
}
