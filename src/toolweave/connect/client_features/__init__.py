"""What a server may ask of its client: sampling, elicitation, roots, logs, further input, tasks.

The specification calls these client features. One set of callbacks, whatever the era; knows no transport.
"""

from __future__ import annotations

__all__: list[str] = []
