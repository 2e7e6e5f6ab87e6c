"""Who holds a lock, in words, so that anyone who waits knows whom to ask."""

from __future__ import annotations

import pwd
from datetime import UTC, datetime


def holder_text(pid: int | None, user: int, since_unix_s: float) -> str:
    """A process, its user by name and since when it holds something; the pid may be unknown."""
    try:
        name = pwd.getpwuid(user).pw_name
    except KeyError:
        name = f"user {user}"
    since = datetime.fromtimestamp(since_unix_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"{'a process' if pid is None else f'process {pid}'} of {name} since {since}"
