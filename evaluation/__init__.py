"""Ranking quality on sets of judged queries: run, compare, tune, report.

For researchers and CI. Everything here reads the engine's own trace, so a number describes
what an activation really did. `python -m evaluation --help` lists the commands.
"""
