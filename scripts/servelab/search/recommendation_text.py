"""A study's answer in one sentence, and as lines for a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

from servelab.answers.comparison import SAME
from servelab.core.figure_text import NO_BREAK, PLACES_MARK, figure, mark, metric_label, percent
from servelab.search.decision import CANNOT_TELL
from servelab.search.proof import BETTER, DISTURBED, FAILED
from servelab.search.recommended import FROM_LOGS, Improvement, MapRange, Proof, Recommended
from servelab.search.winner_map import UNITS


class AnswerText(NamedTuple):
    """A study's answer in one sentence."""

    kind: Literal["win", "keep", "unsure"]
    """`unsure`: the proof cannot tell, so the baseline is kept, or nothing can be used."""
    text: str


def aim(recommended: Recommended) -> str:
    """What one of two answers is best in: `Best in TTFT (ms) p99`."""
    return f"Best in {metric_label(recommended.objective, recommended.per)}"


def answer_text(recommended: Recommended, on: str | None = None) -> AnswerText:
    """The answer; `on` is the workload that decides, else the one whose change is the proof's, or the first."""
    found, second = _one_answer(recommended, on), recommended.second
    if second is None:
        return found
    other, which = _one_answer(second, on), "same" if second.command == recommended.command else "second"
    text = other.text.replace("Use this command", f"Use the {which} command")
    kind = other.kind if other.kind == "win" else found.kind
    return AnswerText(kind, f"{aim(recommended)}: {found.text} {aim(second)}: {text}")


def _one_answer(recommended: Recommended, on: str | None) -> AnswerText:
    proof = recommended.proof
    rows = proof.workloads if proof else recommended.improvements
    found = [row for row in rows if row.workload == on] or [
        row for row in rows if proof and row.change_percent == proof.change_percent
    ]
    row = next(iter([*found, *rows]), None)
    if recommended.changed:
        gain = "" if row is None else f": {_gained(recommended, row)}"
        uneven = [f"but {proof.uneven_starts}"] if proof and proof.uneven_starts else []
        lost = len(recommended.losses)
        losses = [f"but it is worse or failed on {lost} workload{'' if lost == 1 else 's'}"] if lost else []
        clauses = [f"Use this command{gain}", *_loads(recommended), *losses, *uneven, _same_answers(recommended)]
        return AnswerText("win", f"{', '.join(clauses)}.")
    if proof is not None and proof.verdict in (CANNOT_TELL, DISTURBED):
        return AnswerText("unsure", f"Cannot tell, so keep the baseline: {_unsure(proof)}.")
    if proof is None and recommended.untold:
        names, which = ", ".join(recommended.untold), "it" if len(recommended.untold) == 1 else "one of them"
        why = f"runs of the search were disturbed; measured on a quieter machine, {which} may be better: {names}"
        return AnswerText("unsure", f"Cannot tell, so keep the baseline: {why}.")
    if unfit := recommended.baseline_unfit:
        return AnswerText("unsure", f"No answer: no candidate can be used, and the baseline neither: {unfit}.")
    return AnswerText("keep", f"Keep the baseline: {_kept(recommended)}.")


def _gained(recommended: Recommended, row: Improvement) -> str:
    """`229 → 383 total tokens/s (+67.2 %, sure between +17.0 and +140 %)`."""
    label, marked = metric_label(row.metric, row.basis), mark(row.validity, row.baseline_validity)
    unit = label[:1].lower() + label[1:] if label[1:2].islower() else label
    if row.change_percent is None:  # the whole message is that of the proof
        failed = f"not comparable, {': '.join((row.failed or 'a run failed').split(': ')[:2])}"
        return failed if row.value is None else f"{figure(row.value)} {unit} ({failed}{marked})"
    low, high = row.change_ci95_low_percent, row.change_ci95_high_percent
    change = f"{percent(row.change_percent)}{marked}{PLACES_MARK if row.unequal_places else ''}"
    sure = "one measurement a side" if low is None or high is None else f"sure between {_between(low, high)}"
    if recommended.evidence == FROM_LOGS:
        sure = f"{sure.replace('sure ', '')}, {FROM_LOGS}"
    extrapolated = " (extrapolated)" if row.extrapolated else ""
    values = f"{figure(row.baseline_value)} → {figure(row.value)} {unit}{extrapolated}"
    return f"{values} ({change}, {sure})"


def _between(low: float, high: float) -> str:
    return f"{percent(low).removesuffix(NO_BREAK + '%')} and {percent(high)}"


def _loads(recommended: Recommended) -> list[str]:
    """Where the command is better and worse than the baseline, of each curve whose map is proved."""
    texts = []
    for found in recommended.winner_maps:
        unit = UNITS[found.load]
        for side, word in (("winner", "better"), ("baseline", "worse")):
            spans = [_span(each) for each in found.ranges if each.best == [side]]
            texts += [f"{word} at {' and '.join(spans)} {unit}"] if spans else []
    return texts


def _span(found: MapRange) -> str:
    one, other = f"{found.from_load:.3g}", f"{found.to_load:.3g}"
    return one if one == other else f"{one} to {other}"


def _same_answers(recommended: Recommended) -> str:
    found = recommended.answers
    if found is None:
        return "answers not checked"
    if found.verdict == SAME:
        return f"answers unchanged within what {found.asked} questions can show"
    return f"though {found.asked} questions cannot tell whether answers change"


def _unsure(proof: Proof) -> str:
    if proof.verdict == DISTURBED:
        return "the proof was disturbed, also when it was measured again"
    if proof.change_percent is None:
        return "fewer than two pairs of the proof are sound"
    low, high = proof.change_ci95_low_percent, proof.change_ci95_high_percent
    text = f"the proof found {percent(proof.change_percent)}"
    if low is None or high is None or proof.smallest_change_percent is None:
        return f"{text} in one pair, which has no interval"
    smallest = percent(proof.smallest_change_percent, signed=False)
    return f"{text} (between {_between(low, high)}) and could have seen a change of {smallest} or more{_uneven(proof)}"


def _kept(recommended: Recommended) -> str:
    proof = recommended.proof
    lost = recommended.changed_answers
    if lost and (proof is None or proof.verdict in (BETTER, FAILED)):
        best = max(lost, key=lambda each: abs(each.change_percent or 0))
        faster = "" if best.change_percent is None else f" is {percent(best.change_percent)} in the search, but"
        return f"{best.candidate}{faster} changes answers"
    if proof is None:
        return "the search found no candidate that is better beyond noise and margin"
    if proof.verdict == FAILED or proof.change_percent is None:
        return f"what the search proposed {proof.why}"
    low, high = proof.change_ci95_low_percent, proof.change_ci95_high_percent
    sure = "" if low is None or high is None else f" (between {_between(low, high)})"
    found = f"{proof.verdict} in the proof, {percent(proof.change_percent)}{sure}{_uneven(proof)}"
    return f"what the search proposed is {found}"


def _uneven(proof: Proof) -> str:
    return f"; {proof.uneven_starts}" if proof.uneven_starts else ""


def render_recommendation(recommended: Recommended, report: Path, model_has_name: bool = True) -> str:
    """The recommendation as a few lines for a terminal; the report has all else.

    `model_has_name`: the engine finds the served weights by the name in the command. Else only the command with this
    machine's paths starts as printed, and it is the only one.
    """
    lines = [f"{recommended.study}: {answer_text(recommended).text}", *recommended.answers_text, ""]
    lines += [f"    {recommended.launch_command or recommended.command}", ""]
    if recommended.launch_command and model_has_name:
        lines += ["With the model's name in place of its path:", "", f"    {recommended.command}", ""]
    lines += [recommended.note, ""] if recommended.note else []
    proof = recommended.proof
    lines += [f"Proof: {proof.why}"] if proof else []
    rows = proof.workloads if proof else recommended.improvements
    for row in rows:
        loss = f"; {row.verdict}: {row.verdict_why}" if row in recommended.losses else ""
        lines.append(f"    {row.title}: {_gained(recommended, row)}{loss}")
    lines += [found.text for found in recommended.winner_maps]
    figures: list[Improvement | Recommended] = [*rows, recommended]
    sides = [("baseline", each.baseline_validity, each.baseline_validity_note) for each in figures]
    sides += [("measured beside it", each.validity, each.validity_note) for each in figures]
    lines += dict.fromkeys(f"{mark(level)} {level}, {side}: {note}" for side, level, note in sides if mark(level))
    if second := recommended.second:
        lines += ["", f"{aim(second)}:", f"    {second.launch_command or second.command}"]
        lines += [f"Proof: {second.proof.why}"] if second.proof else []
        lines += [found.text for found in second.winner_maps]
    if proof and not recommended.changed:
        lines += ["Proposed by the search, not recommended:", f"    {proof.proposed_command}"]
    return "\n".join([*lines, "", f"Report: {report}"])
