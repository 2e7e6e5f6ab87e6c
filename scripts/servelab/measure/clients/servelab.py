"""Servelab's own load client, `python -m servelab.measure.load.sender`."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pydantic import ValidationError

from servelab.core.errors import ServelabError
from servelab.measure.clients import CLIENTS, Client
from servelab.measure.load import LoadPlan, LoadResult, LoadStats
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import read_arrow


class ServelabClient(Client):
    """Streams with its own event loop, supports every protocol, and writes the records' table itself."""

    name = "servelab"
    version = "4"
    takes_natural_stops = True

    def version_command(self, python: Path) -> list[str]:
        return [str(python), "-c", "from importlib.metadata import version; print(version('servelab'))"]

    def command(self, plan: LoadPlan, folder: Path, python: Path) -> list[str]:
        (folder / "load.json").write_text(plan.model_dump_json(), encoding="utf-8")
        return [str(python), "-m", "servelab.measure.load.sender", str(folder / "load.json"), str(folder)]

    def read(self, plan: LoadPlan, folder: Path) -> LoadResult:
        try:
            records = read_arrow(folder / "requests.parquet").cast(schemas.RUN_REQUESTS)
            kept = folder / "answers.parquet"
            answers = read_arrow(kept).cast(schemas.RUN_ANSWERS) if plan.keep_answers else None
            stats = LoadStats.model_validate_json((folder / "stats.json").read_bytes())
        except (OSError, pa.ArrowException, ValueError, ValidationError) as error:
            raise ServelabError(f"{folder}: not the records of a load client: {error}") from error
        return LoadResult(records, stats, answers)


CLIENTS.register("servelab", ServelabClient())
