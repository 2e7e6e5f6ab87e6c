"""Requests of workloads that an archive leaves out, each with the reason: their licence, or their size.

What a verifier finds left out must be what a build would have left out, for the same reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from servelab.archive.layout import RESULTS
from servelab.archive.references import read_json
from servelab.assets.datasets import Dataset

OPEN_LICENSES = {"Apache-2.0", "BSD-3-Clause", "CC-BY-4.0", "CC-BY-SA-4.0", "CC0-1.0", "MIT", "ODC-By-1.0"}
"""Licences (SPDX) under which a data set's prompts may be redistributed."""
MOST_REQUESTS_BYTES = 256 * 2**20
"""Larger requests of a workload are omitted; their hash and how to make them stay."""
_NOT_THERE = "it was not there"
_SIZE = re.compile(r"it has ([1-9]\d{0,2}(?:,\d{3})*) bytes")


def requests_of(workload: str) -> str:
    """The member with a workload's requests."""
    return f"{RESULTS}/workloads/{workload}/requests.parquet"


def why_left_out(dataset: Dataset | None, requests: Path | None, described: Path) -> str | None:
    """Why a workload's requests are left out, with their sha256 from its description; None if they are not.

    `requests` is None if there is no such file, as in the results of a restored archive that left them out.
    """
    if dataset is not None and dataset.license not in OPEN_LICENSES:
        why = f"its prompts are from {dataset.title}, under {dataset.license}"
    elif requests is None:
        why = _NOT_THERE
    elif (size := requests.stat().st_size) > MOST_REQUESTS_BYTES:
        why = f"it has {size:,} bytes"
    else:
        return None
    return f"{why}; its sha256 is {read_json(described)['requests_sha256']}"


def left_out_again(listed: Mapping[str, str], found: Mapping[str, str]) -> dict[str, str]:
    """What an archive may list as left out, by what was `found` missing; a size, that of a file that is gone, is kept.

    `listed` is the archive's own list.
    """
    return {name: _confirmed(listed.get(name, ""), why) for name, why in sorted(found.items())}


def _confirmed(said: str, why: str) -> str:
    size, _, digest = said.partition(";")
    is_large = (match := _SIZE.fullmatch(size)) and int(match[1].replace(",", "")) > MOST_REQUESTS_BYTES
    return said if is_large and why == f"{_NOT_THERE};{digest}" else why
