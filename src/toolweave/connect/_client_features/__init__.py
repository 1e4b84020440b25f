"""Client features of the specification: sampling, elicitation, roots, logs, multi-round input, tasks.

One set of callbacks for all eras; knows no transport.
"""

from __future__ import annotations

__all__: list[str] = []
