"""Answers: whether a configuration still gives the answers that the baseline gives (docs/search.md).

May import assets and the rooms below it.
"""
