"""One request between a caller and an upstream of any era: its route, its connection, its questions."""
