"""Requests for a server whose tokenizer is not known: texts of random words, as many as its own counts say."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from servelab.assets.workloads import generator, table
from servelab.metrics.tables import schemas

_WORDS = """
time year people way day man thing woman life child world school state family student group country problem hand part
place case week company system program question work government number night point home water room mother area money
story fact month lot right study book eye job word business issue side kind head house service friend father power
hour game line end member law car city community name president team minute idea body information back parent face
others level office door health person art war history party result change morning reason research girl guy moment air
teacher force education foot boy age policy music market sense nation plan college interest death experience effect
use class control care field development role effort rate heart drug show leader light voice wife police mind price
report decision son view relationship town road arm difference value building action season society tax director
position player record paper space ground form event official matter center couple site project activity star table
need court oil situation cost industry figure street image phone data
"""


def texts(seed: int, lengths: Sequence[int]) -> list[str]:
    """Texts of so many words. Each begins with words of its own, so that none finds its beginning in a cache."""
    draw, words = generator(seed), _WORDS.split()
    return [" ".join(draw.choices(words, k=max(4, length))) for length in lengths]


def write_requests(file: Path, measured: Sequence[str], warmup: Sequence[str], output_tokens: int) -> None:
    """Writes the requests as the load client reads them, with `schemas.ASKED` for answers of any length.

    Their lengths in tokens are not known, so the column has 0.
    """
    rows = [
        [{"prompt": text, "input_tokens": 0, "output_tokens": output_tokens} for text in phase]
        for phase in (measured, warmup)
    ]
    requests = table(rows[0], rows[1])
    for field in schemas.ASKED:
        if field.name not in requests.column_names:
            requests = requests.append_column(field, pa.nulls(len(requests), field.type))
    pq.write_table(requests, file)
