"""Submitted runs: enqueued, executed by workers, handed over and resumed."""
