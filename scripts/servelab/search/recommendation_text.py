"""A study's answer as lines for a terminal."""

from __future__ import annotations

from pathlib import Path

from servelab.core.yaml_file import mark
from servelab.search.recommended import FROM_LOGS, Improvement, Proof, Recommended


def render_recommendation(recommended: Recommended, report: Path, model_has_name: bool = True) -> str:
    """The recommendation as a few lines for a terminal.

    `model_has_name`: the engine finds the served weights by the name in the command. Else only the command with this
    machine's paths starts as printed, and it is the only one.
    """
    lines = [f"{recommended.study}: recommended serving command", *recommended.answers_text, ""]
    lines += [f"    {recommended.launch_command or recommended.command}", ""]
    if recommended.launch_command and model_has_name:
        lines += ["With the model's name in place of its path:", "", f"    {recommended.command}", ""]
    lines += [recommended.note, ""] if recommended.note else []
    lines += _answer(recommended)
    lines += _elsewhere(recommended)
    lines += _by_load(recommended)
    lines += _doubts(recommended)
    return "\n".join([*lines, "", f"Report: {report}"])


def keep_text(recommended: Recommended) -> str:
    """Why the baseline is kept, in one sentence."""
    if recommended.proof is None:
        return "Keep the baseline: the search found no candidate that is better beyond noise and margin."
    return f"Keep the baseline: what the search proposed is not proved (verdict: {recommended.proof.verdict})."


def _answer(recommended: Recommended) -> list[str]:
    proof = recommended.proof
    if not recommended.changed:
        lines = [keep_text(recommended)]
        if proof is not None:
            lines += [f"    {proof.why}", "Proposed by the search, not recommended:", f"    {proof.proposed_command}"]
            lines += ["", *_found("What the proof found", recommended, proof)]
        return lines
    title = "Against the baseline"
    if recommended.evidence == FROM_LOGS:
        title += f" ({recommended.evidence})"
    return [*([f"Proof: {proof.why}"] if proof else []), *_found(title, recommended, proof), *_losses(recommended)]


def _found(title: str, recommended: Recommended, proof: Proof | None) -> list[str]:
    rows = proof.workloads if proof else recommended.improvements
    width = max((len(row.title) for row in rows), default=0)
    unit = "pair" if proof else "log"
    head = f"{title}, {recommended.objective} per {recommended.per}:"
    return [head, *(f"    {row.title:<{width}}  {_gain(row, unit)}" for row in rows)]


def _losses(recommended: Recommended) -> list[str]:
    """Lines on the workloads where the winner loses more than the study allows."""
    lost = [row for row in recommended.improvements if row.guard == "loses"]
    lines = [f"    {row.title}: {row.guard_why}" for row in lost]
    most = recommended.max_loss_percent
    return ["", f"It loses more than {most:g} % on {_workloads(len(lost))}:", *lines] if lines else []


def _elsewhere(recommended: Recommended) -> list[str]:
    """Lines on the workloads where the other configuration is better."""
    lines = []
    for row in recommended.by_workload:
        if not row.is_recommended:
            lines += [f"    {row.title}: {row.candidate} ({row.why})", f"        {row.command}"]
    return ["", "Better if you serve only this workload:", *lines] if lines else []


def _by_load(recommended: Recommended) -> list[str]:
    """The winner map of each curve, and the command of a side that is better at some loads but not recommended."""
    if not recommended.winner_maps:
        return []
    lines = ["", "Best by load:"]
    own = "winner" if recommended.changed else "baseline"
    for found in recommended.winner_maps:
        better = dict.fromkeys(each.best[0] for each in found.ranges if len(each.best) == 1)
        lines += [f"    {found.text}"]
        lines += [f"        {side}: {found.commands[side]}" for side in better if side != own]
    return lines


def _workloads(count: int) -> str:
    return f"{count} workload{'' if count == 1 else 's'}"


def _doubts(recommended: Recommended) -> list[str]:
    """Lines on runs behind the figures that are suspect or invalid, and why."""
    lines = []
    gains = recommended.proof.workloads if recommended.proof else recommended.improvements
    own = "optimized" if recommended.changed else "proposed" if gains else "baseline"
    rows: list[tuple[str, Improvement | Recommended]] = [(row.title, row) for row in gains]
    rows = rows or [("Deciding workload", recommended)]
    for title, row in rows:
        sides = [(own, row.validity, row.validity_note)]
        if gains:
            sides.insert(0, ("baseline", row.baseline_validity, row.baseline_validity_note))
        for name, validity, note in sides:
            if sign := mark(validity):
                lines.append(f"    {sign} {title}, {name}: {validity}: {note}")
    return ["", "What the checks found:", *lines] if lines else []


def _gain(row: Improvement, unit: str) -> str:
    if row.failed:
        return f"not comparable: {row.failed}"
    before, after = mark(row.baseline_validity), mark(row.validity)
    text = f"{row.baseline_value:>10.1f}{before} -> {row.value:>10.1f}{after}   {row.change_percent:+7.1f} %"
    if row.extrapolated:
        text += "   extrapolated"
    counted = f"{row.n} {unit}{'' if row.n == 1 else 's'}"
    low, high = row.change_ci95_low_percent, row.change_ci95_high_percent
    if low is None or high is None:
        return f"{text}   (no interval, {counted})"
    text += f"   (95 % {low:+.1f} to {high:+.1f} %, {counted})"
    if row.verdict is not None:
        return f"{text}   {row.verdict}"
    return f"{text}   within noise" if low <= 0 <= high else text
