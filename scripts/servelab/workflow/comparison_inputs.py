"""The comparisons that the configuration names, and what is read of the studies that are compared and listed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from servelab.core.errors import ConfigError
from servelab.core.identity import canonical_json, file_sha256
from servelab.report.compare.wanted import Wanted, wanted_pairs
from servelab.workflow.studies import Studies
from servelab.workflow.study_files import StudyFiles

OF_STUDY = ("study.json", "recommended.json", "report.html")
OF_STAGES = ("plan.json", "table.parquet", "rounds.parquet", "metrics.parquet")


class Comparisons:
    """Comparisons of two studies each, by name; a mistake in the key `compare` is a `ConfigError`."""

    def __init__(self, config: Mapping[str, Any], studies: Studies, results: Path) -> None:
        self._studies, self._files = studies, StudyFiles(studies)
        pairs = wanted_pairs(config.get("compare", []), studies.searches, results)
        self._pairs = {"--".join(side.name for side in pair): pair for pair in pairs}

    def made(self) -> list[str]:
        """All files of all comparisons."""
        suffixes = ("parquet", "html", "md")
        return [f"results/comparisons/{name}/comparison.{suffix}" for name in self._pairs for suffix in suffixes]

    def names(self, comparison: str) -> list[str]:
        """What the two studies are called."""
        return [side.name for side in self._sides(comparison)]

    def folders(self, comparison: str) -> list[str]:
        """Where the results of the two studies are."""
        return [str(side.folder) for side in self._sides(comparison)]

    def inputs(self, comparison: str) -> list[str]:
        """What is read of those studies that this workflow makes; their runs are read too, and were measured before."""
        here = [side.search for side in self._sides(comparison) if side.search]
        of_study = [f"results/{search}/{name}" for search in here for name in OF_STUDY]
        return of_study + [path for each in here for name in OF_STAGES for path in self._files.of_stages(each, name)]

    def elsewhere(self, comparison: str) -> str:
        """Contents of what is read of the other studies, as JSON: no job makes it, so that it is no input."""
        names = (*OF_STUDY, *(f"stages/*/{name}" for name in OF_STAGES))
        folders = [side.folder for side in self._sides(comparison) if not side.search]
        files = [file for folder in folders for name in names for file in sorted(folder.glob(name))]
        return canonical_json({str(file): file_sha256(file) for file in files})

    def listed(self) -> list[str]:
        """What the index over all studies is made from."""
        of_studies = [f"results/{search}/{name}" for search in self._studies.searches for name in OF_STUDY]
        return of_studies + [f"results/comparisons/{name}/comparison.html" for name in self._pairs]

    def _sides(self, comparison: str) -> tuple[Wanted, Wanted]:
        if comparison not in self._pairs:
            raise ConfigError(
                f"{comparison}: no such comparison; name it in config/config.yaml as `compare: [[first, second]]`"
            )
        return self._pairs[comparison]
