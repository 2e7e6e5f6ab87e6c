"""The load client itself: no process is in front of the servers."""

from __future__ import annotations

from servelab.engines.balancers import BALANCERS, ROUND_ROBIN, Balancer


class RoundRobin(Balancer):
    """Each server in turn."""

    name = ROUND_ROBIN


class LeastInFlight(Balancer):
    """The server with the fewest requests in flight; the next in turn of several."""

    name = "least_in_flight"


for _balancer in (RoundRobin(), LeastInFlight()):
    BALANCERS.register(_balancer.name, _balancer)
