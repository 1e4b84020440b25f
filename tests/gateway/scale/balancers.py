"""HAProxy and nginx before replicas of a gateway, with the configurations of the documentation. Judges nothing."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.gateway.running import until

__all__ = ["BALANCERS", "balancer"]

SNIPPETS = Path(__file__).parents[3] / "docs_src"
BALANCERS = {"haproxy": SNIPPETS / "scale_haproxy.cfg", "nginx": SNIPPETS / "scale_nginx.conf"}
DOCUMENTED_PORT = 8080
DOCUMENTED_REPLICAS = (8001, 8002, 8003)
NGINX = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
events {{ worker_connections 1000; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  include {config};
}}
"""


@contextmanager
def balancer(kind: str, folder: Path, port: int, replicas: Sequence[int]) -> Generator[None]:
    """Run a balancer on a port, before replicas on other ports, until the end of the block."""
    config = folder / BALANCERS[kind].name
    text = BALANCERS[kind].read_text("utf-8")
    for documented, actual in zip((DOCUMENTED_PORT, *DOCUMENTED_REPLICAS), (port, *replicas), strict=True):
        assert text.count(f"127.0.0.1:{documented}") == 1
        text = text.replace(f"127.0.0.1:{documented}", f"127.0.0.1:{actual}")
    config.write_text(text, "utf-8")
    command = [_program(kind), "-f", str(config)]
    if kind == "nginx":
        main = folder / "main.conf"
        main.write_text(NGINX.format(folder=folder, config=config), "utf-8")
        command = [_program(kind), "-e", str(folder / "nginx.log"), "-p", str(folder), "-c", str(main)]
    log = folder / f"{kind}.log"
    with log.open("a") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            until(lambda: _listens(port, process, log), kind)
            yield
        finally:
            process.terminate()


def _program(kind: str) -> str:
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
    found = shutil.which(kind, path=path)
    if found is None:
        pytest.skip(f"no {kind} on PATH (Debian: apt-get install {kind})")
    return found


def _listens(port: int, process: subprocess.Popen[bytes], log: Path) -> bool:
    assert process.poll() is None, log.read_text()
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
