"""Recorded studies: logs that a team already holds, and the claims that were published on them.

`study` is what a user writes, `claims` what was claimed, `commands` reads serving commands, `plan` gives stages their
candidates, `parse` makes the tables that a live study's stages have. From there on both go the same way.
"""
