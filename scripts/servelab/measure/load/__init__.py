"""What load to send to a server and when (`LoadPlan`), and Servelab's own client that sends it.

`plan` → `requests` (bodies, `arrivals`) → `loop` in one or more `processes` (one `exchange` per request) → `framing`
and `stream` → `records`. See docs/load.md.
"""

from servelab.measure.load.plan import Endpoint, LoadPlan, LoadStats

__all__ = ["Endpoint", "LoadPlan", "LoadStats"]
