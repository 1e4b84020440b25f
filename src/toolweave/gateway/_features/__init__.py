"""The features of a gateway: the response to each method, and the fast path of plain calls."""
