"""What is known of each member of an archive: whether it was made again, matched, signed, or is not proved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from servelab.archive.layout import PROVENANCE, RESULTS


@dataclass
class Coverage:
    """Members of an archive by what covers them; each is in one list only."""

    reproduced: set[str] = field(default_factory=set)
    """Made again from other members, with the same content."""
    matched: set[str] = field(default_factory=set)
    """Files of the workflow that the verifier has too."""
    signed: set[str] = field(default_factory=set)
    """Covered by a signature."""
    unproved: dict[str, str] = field(default_factory=dict)
    """Others, each with what it is: consistent with the rest as far as that can be checked, and no more. Also files
    that the archive could have and has not."""

    @property
    def is_whole(self) -> bool:
        """Whether every member is covered."""
        return not self.unproved


def sort_members(
    members: Iterable[str],
    *,
    reproduced: set[str],
    matched: set[str],
    signed: set[str],
    known: Mapping[str, str],
    absent: Mapping[str, str],
) -> Coverage:
    """Puts each member into the first list that has it; `known` says what some of the others are.

    `absent` has what is not in the archive, and what it is.
    """
    coverage = Coverage(unproved=dict(absent))
    for name in sorted(members):
        if name in reproduced:
            coverage.reproduced.add(name)
        elif name in matched:
            coverage.matched.add(name)
        elif name in signed:
            coverage.signed.add(name)
        else:
            coverage.unproved[name] = known.get(name) or _what(name)
    return coverage


def coverage_lines(coverage: Coverage, known_as: str) -> Iterator[str]:
    """The lists with their counts, a line each; `known_as` is what the workflow was compared with."""
    yield f"made again from other files and equal: {len(coverage.reproduced):,} files"
    yield f"equal to {known_as}: {len(coverage.matched):,} files"
    yield f"covered by a signature: {len(coverage.signed):,} files"
    kinds = Counter(coverage.unproved.values())
    listed = f" ({', '.join(f'{count:,} {kind}' for kind, count in sorted(kinds.items()))})" if kinds else ""
    yield f"not proved: {len(coverage.unproved):,} files{listed}"


def _what(name: str) -> str:
    kinds = {
        f"{RESULTS}/runs/": "raw records of runs",
        f"{RESULTS}/workloads/": "requests and their descriptions",
        f"{RESULTS}/logs/": "logs of jobs",
        f"{RESULTS}/recorded/": "recorded logs",
        f"{RESULTS}/studies/": "answers under earlier versions",
        f"{PROVENANCE}/": "descriptions of datasets, models and environments",
    }
    return next((kind for folder, kind in kinds.items() if name.startswith(folder)), "other files")
