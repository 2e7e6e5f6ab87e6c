"""Drafts a recorded study from a page or a folder of logs: what it says of candidates, runs and figures, for review."""
