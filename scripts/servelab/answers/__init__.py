"""Answers: whether a configuration still gives the answers that the baseline gives (docs/answers.md)."""
