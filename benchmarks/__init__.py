"""Benchmarks with a runner of their own: `python -m benchmarks [NAME ...]`.

Every figure is a median over interleaved rounds and a ratio to a raw, hand-written baseline of the same run;
absolute times of a shared machine mean little.
"""
