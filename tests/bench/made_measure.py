"""A stand-in for `scripts/measure.py`: the folders of a job's runs at once, copied from `made_run/` beside it.

A file `speeds.json` there gives the speed of runs whose specification has a text in it; it divides all times.
"""

import hashlib
import json
import sys
import uuid
from pathlib import Path
from typing import Any

from servelab.core.seal import seal_of

MADE = Path(__file__).with_name("made_run")


def make_run(spec: Any, runs: Path, **ids: str) -> None:
    """Writes a run of four requests in two rounds under the name of its specification and moves it into place."""
    canonical = json.dumps(spec, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    run_id = hashlib.sha256(canonical.encode()).hexdigest()[:20]
    output = runs / run_id
    if (output / "status.json").exists():  # Snakemake makes the folder
        return
    folder = output.with_name(f".{run_id}.part")
    folder.mkdir(parents=True)
    for name in ("requests.parquet", "telemetry.parquet", "manifest.json"):
        (folder / name).write_bytes((MADE / name).read_bytes())
    status = json.loads((MADE / "status.json").read_bytes())
    if (speed := _speed(canonical)) != 1:
        import pyarrow as pa  # here: it takes longer than all else
        import pyarrow.parquet as pq

        requests = pq.read_table(folder / "requests.parquet").to_pandas()
        times = [name for name in requests if name.endswith("_s")]
        requests[times] /= speed
        requests["chunk_gaps_ms"] = [[gap / speed for gap in gaps] for gaps in requests["chunk_gaps_ms"]]
        schema = pq.read_schema(folder / "requests.parquet")
        pq.write_table(pa.Table.from_pandas(requests, schema=schema), folder / "requests.parquet")
    (folder / "spec.json").write_text(json.dumps(spec))
    status = {**status, **ids, "run_id": run_id}
    seal = seal_of(folder, status).model_dump(mode="json")
    (folder / "status.json").write_text(json.dumps({**status, "seal": seal}))
    folder.replace(output)


def _speed(spec: str) -> float:
    file = MADE / "speeds.json"
    speeds = json.loads(file.read_bytes()) if file.exists() else {}
    return next((speed for text, speed in speeds.items() if text in spec), 1.0)


if __name__ == "__main__":
    given = dict(word.split("=", 1) for word in sys.argv[1:])
    job_id = uuid.uuid4().hex
    for visit in json.loads(given["job"])["visits"]:
        start_id = uuid.uuid4().hex
        for run in visit:
            make_run(run["spec"], Path(given["runs"]), job_id=job_id, start_id=start_id)
