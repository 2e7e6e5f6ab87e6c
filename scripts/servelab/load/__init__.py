"""The load: what to send to a server and when (`LoadPlan`), and Servelab's own client that does it.

`plan` → `requests` (bodies, `arrivals`) → `loop` in one or more `processes` (an `exchange` a request) → `framing` and
`stream` → `records`. See docs/load.md.
"""

from servelab.load.plan import Endpoint, LoadPlan
from servelab.load.stats import LoadStats

__all__ = ["Endpoint", "LoadPlan", "LoadStats"]
