"""Any JSON, with the words of MCP in it: strategies of Hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
NAMES = (
    "type text data mimeType uri name resource blob content structuredContent isError resultType _meta annotations "
    "inputSchema outputSchema properties title description icons size role messages contents values arguments "
    "uriTemplate completion total hasMore"
)
WORDS = st.sampled_from(NAMES.split(" "))
TYPES = st.sampled_from(["text", "image", "audio", "resource_link", "resource", "object", "complete"])
JSON = st.recursive(
    SCALARS | TYPES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS | st.text(max_size=4), inner, max_size=6),
    max_leaves=25,
)
OBJECTS = st.dictionaries(WORDS, JSON | TYPES, max_size=8)
