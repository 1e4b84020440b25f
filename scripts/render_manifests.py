"""Render the Helm chart into deploy/kubernetes, one file for each folder of its templates; see scripts/manifests."""

# pyright: basic, reportMissingImports=false
# Helm and the validator are installed apart from the package: scripts/manifests.

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import helm_python
import kubernetes_validate
import yaml

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "deploy" / "helm" / "toolweave"
PLAIN = ROOT / "deploy" / "kubernetes"
VERSIONS = ("1.30", "1.37")
HEAD = "# Made from the Helm chart by scripts/manifests: change the chart, not this file.\n"

VARIANTS: dict[str, dict[str, Any]] = {
    "the defaults": {},
    "every option": {
        "imagePullSecrets": [{"name": "registry"}],
        "gateway": {
            "autoscaling": {"enabled": True},
            "ingress": {
                "enabled": True,
                "className": "nginx",
                "annotations": {"example/name": "value"},
                "tlsSecretName": "tls",
                "paths": ["/mcp", "/.well-known"],
            },
            "trustedProxies": ["10.0.0.0/8"],
            "extraArgs": ["--rest"],
            "networkPolicyFrom": [{"podSelector": {"matchLabels": {"app": "ingress"}}}],
        },
        "worker": {"autoscaling": {"enabled": False}},
        "redis": {"storageClassName": "fast"},
    },
    "another Redis and no workers": {
        "gateway": {"tokenFromSecret": False},
        "worker": {"enabled": False},
        "redis": {"enabled": False},
        "networkPolicy": {"enabled": False},
    },
}
"""Values with which the chart is rendered and validated; each option has another value in one of them."""


def rendered(values: dict[str, Any]) -> dict[str, str]:
    """Return the manifests of the chart, by file name."""
    with helm_python.Chart.load(CHART) as chart:
        found = chart.render(values, name="toolweave", namespace="toolweave")
    files: dict[str, str] = {}
    for path, text in sorted(found.items()):
        parts = Path(path).parts
        if path.endswith(".yaml") and text.strip():
            files.setdefault(f"{parts[-2]}.yaml", HEAD)
            files[f"{parts[-2]}.yaml"] += f"---\n{text.strip()}\n"
    return files


def problems() -> list[str]:
    """Return the problems of the chart and of what it renders."""
    found: list[str] = []
    for name, values in VARIANTS.items():
        report = helm_python.lint(CHART, values, strict=True)
        found += [f"helm lint, {name}: {message['error']}" for message in report["messages"] if message["severity"] > 1]
        found += [f"helm lint, {name}: {error}" for error in report["errors"]]
        for file, text in rendered(values).items():
            for document in yaml.safe_load_all(text):
                what = f"{name}, {file}, {document['kind']} {document['metadata']['name']}"
                found += [f"{what}: {error}" for error in invalid(document)]
    return found


def invalid(document: dict[str, Any]) -> list[str]:
    """Return the reasons why Kubernetes would refuse a manifest."""
    found: list[str] = []
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            found.append(f"Kubernetes {version}: {error.message}")
    return found


def refused(values: dict[str, Any]) -> bool:
    """Return whether the chart refuses these values."""
    try:
        rendered(values)
    except helm_python.HelmError:
        return True
    return False


def main() -> int:
    """Write the manifests, or compare and validate them with --check."""
    wanted = rendered({})
    if "--check" not in sys.argv[1:]:
        PLAIN.mkdir(exist_ok=True)
        for old in PLAIN.glob("*.yaml"):
            old.unlink()
        for name, text in wanted.items():
            (PLAIN / name).write_text(text, encoding="utf-8")
        return 0
    found = problems()
    for values in ({"gatway": {}}, {"gateway": {"replicas": 0}}, {"worker": {"grace": 3}}):
        if not refused(values):
            found.append(f"the chart accepts the unknown or wrong value {json.dumps(values)}")
    present = {path.name: path.read_text(encoding="utf-8") for path in PLAIN.glob("*.yaml")}
    if present != wanted:
        found.append("deploy/kubernetes differs from the chart: run scripts/manifests")
    print("\n".join(found) or f"{len(wanted)} files as the chart has them, {len(VARIANTS)} variants valid")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
