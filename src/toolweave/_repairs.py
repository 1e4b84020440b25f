"""The repairs of nearly valid input, as rows of the tables in docs/forgiveness.md.

Each row is next to the code that does the repair, and holds the words that the repair is reported with.
"""

from __future__ import annotations

from toolweave._value import Value


class Repair(Value, frozen=True, kw_only=True):
    """One repair.

    Attributes:
        given: The message or value that is nearly right.
        read_as: Its reading.
        limit: The limit of the repair.
        switch: The option that switches it off, or the reason why there is none.
        problem: The text that is reported, with the places of its values in braces; "" if another part reports it.
    """

    given: str
    read_as: str
    limit: str
    switch: str
    problem: str = ""
