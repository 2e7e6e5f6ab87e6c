"""A stand-in for `scripts/measure.py`: the folder of a run at once, copied from `made_run/` beside it."""

import argparse
import json
from pathlib import Path


def make_run(spec: str, output: Path) -> None:
    """Writes a run of four requests in two rounds under another name and moves it into place."""
    made = Path(__file__).with_name("made_run")
    folder = output.with_name(f".{output.name}.part")
    folder.mkdir(parents=True)
    for name in ("requests.parquet", "telemetry.parquet", "manifest.json"):
        (folder / name).write_bytes((made / name).read_bytes())
    (folder / "spec.json").write_text(spec)
    status = json.loads((made / "status.json").read_bytes())
    (folder / "status.json").write_text(json.dumps({"run_id": output.name, **status}))
    folder.replace(output)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--spec")
    parser.add_argument("--output", type=Path)
    arguments, _ = parser.parse_known_args()
    make_run(arguments.spec, arguments.output)
