"""Errors that a user can fix; command lines print them as one line and exit with `exit_code`."""


class ServelabError(Exception):
    """An error that the user can fix: the message says what is wrong, where, and what to do."""

    exit_code = 1
    kind = "error"
    """Whose fault it is (`RunOutput.kind`)."""
    reason: str | None = None


class ConfigError(ServelabError):
    """A study or another configuration file is wrong: names file, key and fix."""

    exit_code = 2


class Outage(ServelabError):  # noqa: N818 (the field's word, and not always an error)
    """The machine failed, not the candidate (disk, device lease, lost coordinator): nothing is cached; run again."""

    exit_code = 75  # EX_TEMPFAIL
    kind = "outage"
