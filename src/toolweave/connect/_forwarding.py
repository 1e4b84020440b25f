"""Requests that are made for another client, and sent as they are: the part of a connection that a gateway uses.

Pure; the requester sends them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from toolweave.connect._client_features.callbacks import AnswerRequest
from toolweave.connect._direct import DirectCall
from toolweave.connect._session import Declared, OnNotification


class ForwardedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request of another client; its result comes back as the server gave it.

    Attributes:
        method: The method.
        params: The parameters as they are sent, without `_meta`.
        meta: The client's own members of `_meta`; the envelope of the era and the progress token are added.
        declared: The client, as modern servers see it in the envelope; None declares this one.
        on_progress: Gets the parameters of the request's progress notifications; None asks for none.
        on_news: Gets the other notifications on the request's own stream, such as log messages, where the transport
            has one.
        sole: Whether no other request of a client runs on the connection, so that all its notifications are of this.
        answer: Answers the input that a modern server asks for, in rounds; None returns its requests as the result.
        follow_tasks: Whether a call that becomes a task is followed to its end.
        sent: The call as it was sent already, with its outcome; the requester continues from there.
    """

    method: str
    params: Mapping[str, Any]
    meta: Mapping[str, Any]
    declared: Declared | None = None
    on_progress: Callable[[Mapping[str, Any]], None] | None = None
    on_news: OnNotification | None = None
    sole: bool = False
    answer: AnswerRequest | None = None
    follow_tasks: bool = True
    sent: DirectCall | None = None
