"""Servelab's own load client, `python -m servelab.load`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from servelab import schemas
from servelab.clients import CLIENTS
from servelab.errors import ServelabError


@dataclass(frozen=True)
class ServelabClient:
    """Streams over its own asyncio protocol; its records are the table itself."""

    name: str = "servelab"
    version: str = "1"

    def command(self, load_path: Path, output_path: Path) -> list[str]:
        """See `Client.command`."""
        return [sys.executable, "-m", "servelab.load", "--load", str(load_path), "--output", str(output_path)]

    def read(self, output_path: Path) -> pa.Table:
        """See `Client.read`."""
        try:
            return pq.read_table(output_path).cast(schemas.RUN_REQUESTS)
        except (OSError, pa.ArrowException, ValueError) as error:
            raise ServelabError(f"{output_path}: not the records of a load client: {error}") from error


CLIENTS.register("servelab", ServelabClient())
