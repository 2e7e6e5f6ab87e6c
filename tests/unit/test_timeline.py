"""What happened when, in loads whose figures are known."""

import pandas as pd
import pytest
from made_records import random_run, stream, table

from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import record_array
from servelab.metrics.timeline import timeline


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
