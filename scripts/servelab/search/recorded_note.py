"""What the recommendation of a recorded study says of its command: whether the figures beside it are that command's."""

from __future__ import annotations

from collections.abc import Sequence

from servelab.search.standing import Row
from servelab.study.kinds import SearchedPlan, SearchedStudy
from servelab.study.recorded.commands import same_command
from servelab.study.recorded.plan import RecordedPlanCandidate
from servelab.study.recorded.study import RecordedStudy


def measurement_note(study: SearchedStudy, last: SearchedPlan, changed: bool, rows: Sequence[Row]) -> str | None:
    """A sentence for each way in which the recommended command was not measured; None if it was, or in a live study.

    `last` is the plan of the last stage, `changed` whether its winner is recommended, `rows` the answer's rows of its
    table, one per workload.
    """
    answer = last.candidates[-1 if changed else 0]
    if not isinstance(study, RecordedStudy) or not isinstance(answer, RecordedPlanCandidate):
        return None
    on, names = study.objective.on, study.model_names
    parts = [
        f"This command has no measurement on {on}: {row['reason']}: {row['message']}."
        for row in rows
        if row["workload"] == on and row["outcome"] != "ok"
    ]
    published = study.candidates[answer.reference].command
    if not same_command(published, answer.command, names):
        parts.append(f"Published for it is another command, which was never run on {on}: {published}")
    parts += [
        f"Its figures on {row['workload']} are of another command: {row['command']}"
        for row in rows
        if not same_command(str(row["command"]), answer.command, names)
    ]
    return " ".join(parts) or None
