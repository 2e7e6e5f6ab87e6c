"""The steady state of loads whose figures are known, and what happened when."""

import pandas as pd
import pytest
from made_records import closed_loop, random_run, stream, summary, table

from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import record_array
from servelab.metrics.timeline import timeline


def steady(rows):
    figures = {name: row for name, row in summary(rows).items() if name.startswith("steady_")}
    return {name: row["mean"] for name, row in figures.items()}


def test_building_up_and_running_out_is_left_out():
    """Ten slots, one a second more, then one a second fewer: nine or more are at work from 8 to 32 s."""
    rows = closed_loop([float(i) for i in range(10)], [31.0 + i for i in range(10)], 1.0, 4)
    figures = steady(rows)
    assert figures["steady_duration_s"] == pytest.approx(32 - 8)
    # At each whole second of the window a request ends in every slot that was at work before it: nine in the second
    # from 8 to 9, ten from then on to 31, nine in the last.
    ended = 9 + 22 * 10 + 9
    assert figures["steady_requests_per_s"] == pytest.approx(ended / 24)
    assert figures["steady_output_tokens_per_s"] == pytest.approx(4 * ended / 24)
    assert figures["steady_total_tokens_per_s"] == pytest.approx(14 * ended / 24)
    assert figures["steady_e2el_ms"] == pytest.approx(1000)
    whole = {name: row["mean"] for name, row in summary(rows).items()}
    assert whole["output_tokens_per_s"] == pytest.approx(4 * 310 / 40)  # a fifth lower: the ends weigh on it


@pytest.mark.parametrize("sent_over_s", [0.0, 0.5])
def test_a_single_wave_has_no_steady_state(sent_over_s):
    rows = [stream(sent_over_s * i / 20, 1.0 + 0.1 * i, 10) for i in range(20)]
    assert set(steady(rows).values()) == {None}


def sums(rows):
    frame = pd.DataFrame(timeline(record_array(table(rows))))
    return frame, frame.groupby("round")


@pytest.mark.parametrize("seed", range(5))
def test_the_timeline_adds_up_to_the_records(seed):
    rows = [*random_run(seed), stream(0.2, 3.0, 7, phase="settle")]
    frame, rounds = sums(rows)
    records = table(rows).to_pandas()
    for number, group in records.groupby("round"):
        sent = group[group.sent_s.notna()]
        good = group[group.error.isna()]
        buckets = rounds.get_group(number)
        assert buckets.requests_sent.sum() == len(sent)
        assert buckets.requests_ended.sum() == len(group)
        assert buckets.output_tokens.sum() == pytest.approx(good.output_tokens.sum())
        busy = (buckets.requests_in_flight * buckets.seconds).sum()
        assert busy == pytest.approx((sent.end_s - sent.sent_s).sum())
        assert buckets.start_s.iloc[-1] <= group.end_s.max() < buckets.start_s.iloc[-1] + buckets.seconds.iloc[-1]
    names = schemas.TIMELINE.names[4:]
    assert list(frame.columns) == names
