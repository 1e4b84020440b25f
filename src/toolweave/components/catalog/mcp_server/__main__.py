"""Run the server: over standard input and output, or with `--http PORT`."""

from __future__ import annotations

import argparse

from .server import create_server


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--http", metavar="PORT", type=int, help="serve over HTTP")
    parser.add_argument("--host", default="127.0.0.1", help="the address for --http")
    options = parser.parse_args()

    server = create_server()
    if options.http is None:
        # standard output carries the protocol: what is printed goes to standard error
        server.run_stdio()
    else:
        server.run_http(host=options.host, port=options.http, on_started=announce)


def announce(url: str) -> None:
    print(f"serving on {url}", flush=True)


if __name__ == "__main__":
    main()
