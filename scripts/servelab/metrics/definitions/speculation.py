"""How much of what speculative decoding drafts is accepted: an observation per round, none without drafts."""

from __future__ import annotations

import numpy as np

from servelab.metrics.definitions import Observations, Round, metric
from servelab.metrics.definitions.cache import during_load, increase

_GAUGE = "; of SGLang, which counts neither, the mean of its gauge over the readings of the round"


@metric(
    "draft_acceptance_percent",
    title="Accepted draft tokens",
    unit="percent",
    formula=f"100 x draft tokens that the model accepted / draft tokens, by the server's counters{_GAUGE}",
    equals="vLLM `spec_decode_acceptance_rate`",
    higher_is_better=None,
)
def _draft_acceptance_percent(data: Round) -> Observations:
    drafted, accepted = (
        increase(data.telemetry, name) for name in ("draft_tokens_total", "accepted_draft_tokens_total")
    )
    if drafted and accepted is not None:
        return np.array([100 * accepted / drafted])
    return _mean(100 * during_load(data.telemetry, "draft_accepted_fraction"))


@metric(
    "draft_accepted_length_tokens",
    title="Tokens of a step with a draft",
    unit="tokens",
    formula=f"1 + draft tokens that the model accepted / drafts: the model's own token and those accepted{_GAUGE}",
    equals="vLLM `spec_decode_acceptance_length`",
    higher_is_better=None,
)
def _draft_accepted_length_tokens(data: Round) -> Observations:
    drafts, accepted = (increase(data.telemetry, name) for name in ("drafts_total", "accepted_draft_tokens_total"))
    if drafts and accepted is not None:
        return np.array([1 + accepted / drafts])
    return _mean(during_load(data.telemetry, "accepted_length_tokens"))


def _mean(readings: Observations) -> Observations:
    """The mean of the readings above 0; none without any: a server that drafts nothing may print 0."""
    drafted = readings[readings > 0]
    return np.array([drafted.mean()]) if drafted.size else drafted
