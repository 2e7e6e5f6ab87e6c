"""The load: what to send to a server and when (`LoadPlan`), and Servelab's own client that does it.

`plan` → `requests` (bodies, arrival times) → `sender` (one `connection` a request) → `stream` (records).
"""

from servelab.load.plan import Endpoint, LoadPlan

__all__ = ["Endpoint", "LoadPlan"]
