"""From a user's own command to the study that an expert would write: reads the command, and proposes candidates.

May import cli and the rooms below it.
"""
