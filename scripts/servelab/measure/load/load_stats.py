"""Statistics of the load client over one round."""

from __future__ import annotations

from pydantic import Field

from servelab.core.json_file import JsonPart


class LoadStats(JsonPart):
    """The load client's own cost in one round, and how the round ended; null for what the client does not report."""

    processes: int = Field(1, description="Processes of the client.")
    origin_monotonic_s: float | None = Field(None, description="Time 0 of the records on the monotonic clock.")
    wall_s: float | None = Field(None, description="From the start of the round until the last request ended.")
    cpu_s: float | None = Field(None, description="CPU time of all its processes over `wall_s`.")
    max_rss_bytes: int | None = Field(None, description="Peak memory of all its processes together.")
    unread_p99_ms: float | None = Field(
        None, description="99th percentile of the time that pieces waited in the kernel until the client read them."
    )
    requests_resent: int = Field(
        0,
        description="Requests sent again on a new connection, as the server had ended the kept one before it answered.",
    )
    requests_not_sent: int = Field(0, description="Requests not sent because `duration_s` was over.")
    saturated: bool = Field(False, description="Whether the round ended because too many requests were in flight.")
