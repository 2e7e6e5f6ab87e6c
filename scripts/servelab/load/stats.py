"""What a round of load cost the client."""

from __future__ import annotations

from servelab.spec import Strict


class LoadStats(Strict):
    """What a round of load cost the client, and how it went; None where the client does not tell."""

    processes: int = 1
    origin_monotonic_s: float | None = None
    """The records' zero on the system's monotonic clock."""
    wall_s: float | None = None
    """From the first request's time until the last has ended."""
    cpu_s: float | None = None
    """CPU time of all its processes over `wall_s`."""
    max_rss_bytes: int | None = None
    """Most memory, all processes together."""
    unread_p99_ms: float | None = None
    """99th percentile, over pieces, of the time a piece lay in the kernel before the client read it."""
    requests_not_sent: int = 0
    """Requests left out because the time to send was over."""
    saturated: bool = False
    """The round was ended because too many requests were in flight."""
