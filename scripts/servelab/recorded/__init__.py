"""Recorded studies: logs that a team already holds, read into tables, and the claims published on them, audited.

`readers` reads the logs of each tool, `logs` gives a candidate's figures, `log_tables` makes the tables that a live
study's stages have, and `audit` checks claims and logs. May import search and the rooms below it.
"""
