"""The rates that saturated the server of a visit: what would be sent at a higher one is left out."""

from __future__ import annotations

from servelab.core.identity import content_id
from servelab.core.run_spec import RunSpec
from servelab.measure.outcome import Outcome


class Saturated:
    """Curves of one visit that reached the server's limit, each with the lowest rate that did.

    A curve's points differ in their rate alone. Only a run that says so (`unless_saturated`) is left out.
    """

    def __init__(self) -> None:
        self._at: dict[str, float] = {}

    def note(self, spec: RunSpec, outcome: Outcome) -> None:
        """Remembers the rate of a run if the server could not keep up with it."""
        rate = spec.protocol.request_rate
        if rate != "inf" and outcome.saturated(spec):
            self._at[_curve(spec)] = min(rate, self._at.get(_curve(spec), rate))

    def below(self, spec: RunSpec) -> str | None:
        """Why a run is not sent: the server was saturated at a lower rate; None if it is to be sent."""
        rate, at = spec.protocol.request_rate, self._at.get(_curve(spec))
        if not spec.unless_saturated or rate == "inf" or at is None or at >= rate:
            return None
        return f"not sent at {rate:g} requests/s: the server was saturated at {at:g}"


def _curve(spec: RunSpec) -> str:
    """Equal for the points of a curve."""
    content = spec.model_dump(mode="json", exclude={"unless_saturated"})
    return content_id({**content, "protocol": {**content["protocol"], "request_rate": None}})
