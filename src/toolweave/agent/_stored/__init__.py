"""Stored runs and sessions: records, indexes, journals, and the calls that wait for a person."""
