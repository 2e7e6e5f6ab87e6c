"""Requests in flight and tokens by time, in loads whose figures are known."""

import numpy as np
import pytest
from made_records import random_run, stream, table

from servelab.metrics.tables.io import by_round, record_array, succeeded
from servelab.metrics.timeline import in_flight, output_token_events


@pytest.mark.parametrize("seed", range(5))
def test_tokens_and_requests_in_flight_add_up_to_the_records(seed):
    rows = record_array(table([*random_run(seed), stream(0.2, 3.0, 7, phase="settle")]))
    for requests in by_round(rows).values():
        good = succeeded(requests)
        assert output_token_events(good).tokens.sum() == pytest.approx(np.nansum(good["output_tokens"]))
        steps = in_flight(requests["sent_s"], requests["end_s"])
        busy = (steps.counts[:-1] * np.diff(steps.times_s)).sum()
        assert busy == pytest.approx(np.nansum(requests["end_s"] - requests["sent_s"]))
