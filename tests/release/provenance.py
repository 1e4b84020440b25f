"""The provenance of built files, as an in-toto statement with SLSA's predicate: `python provenance.py FILES...`.

It says from which commit and by which script the files were made. It proves nothing until it is signed.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

__all__ = ["statement"]


def statement(files: list[Path], *, commit: str, repository: str) -> dict[str, Any]:
    """Return the statement for some files; `repository` may be empty for a trial."""
    source: dict[str, Any] = {"digest": {"gitCommit": commit}}
    if repository:
        source["uri"] = f"git+{repository}@{commit}"
    parameters = {"script": "scripts/release", "repository": repository}
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [
            {"name": file.name, "digest": {"sha256": hashlib.sha256(file.read_bytes()).hexdigest()}}
            for file in sorted(files)
        ],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": f"{repository or 'urn:toolweave'}/scripts/release",
                "externalParameters": parameters,
                "internalParameters": {"python": platform.python_version()},
                "resolvedDependencies": [source],
            },
            "runDetails": {"builder": {"id": f"{repository or 'urn:toolweave'}/scripts/release"}},
        },
    }


def _main() -> int:
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    files = [Path(name) for name in sys.argv[1:]]
    written = statement(files, commit=commit, repository=os.environ.get("REPO_URL", "").rstrip("/"))
    json.dump(written, sys.stdout, indent=2)
    sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(_main())
