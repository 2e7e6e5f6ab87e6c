"""The study's answer: the serving command to use, and what its proof found on every workload.

Only a proof makes a candidate the answer. What the search found chose the candidate and is no claim: it is promised.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from servelab.engines.adapters import ENGINES
from servelab.measure.run_files import RunManifest
from servelab.metrics.objective import Basis
from servelab.results.answers import AnswersFound, found_in
from servelab.results.compare_with_baseline import SEARCH
from servelab.search.decide import NOT_RUN, compare, unfit
from servelab.search.decision import CANNOT_TELL, CHANGES_ANSWERS, Decision, Row
from servelab.search.deployment import forms, launched
from servelab.search.planning import effective_changes, shown
from servelab.search.proof import BASELINE, FAILED, WINNER, asked_half_width_percent
from servelab.search.proof_plan import judge
from servelab.search.recommended import (
    FROM_LOGS,
    NOTHING_TO_PROVE,
    PROVED,
    ChangedAnswers,
    Improvement,
    Proof,
    Recommended,
    measurement_note,
)
from servelab.search.winner_map import winner_maps
from servelab.study.configuration import Configuration
from servelab.study.plan import Plan
from servelab.study.project import SearchedPlan, SearchedStudy
from servelab.study.study import CONFIRM_FIRST, Study

_NUMBERS = ("baseline_value", "value", "change_percent", "change_ci95_low_percent", "change_ci95_high_percent")


def recommend(
    study: SearchedStudy,
    last: SearchedPlan,
    table: pd.DataFrame,
    improvements: pd.DataFrame,
    runs_folder: Path | None,
    titles: Mapping[str, str],
    promised_percent: float | None = None,
    decisions: Sequence[Decision] = (),
) -> Recommended:
    """The study's answer.

    `last` is the plan of the last stage and `table` its table; `improvements` is the study's; `titles` has each
    workload's title; `promised_percent` is the change that the search found; `decisions` are those of the search.
    The winner of the search is recommended if its proof says that it is better, or if it is that of a recorded study;
    else the baseline. `runs_folder` contains the runs; None for a recorded study, where
    nothing ran here.
    """
    table = table[table["stage"] == last.stage]
    baseline, winner = last.candidates[0], last.candidates[-1]
    gains = _gains(study, last, table, improvements, titles) if winner is not baseline else []
    proof = None
    if isinstance(study, Study) and winner is not baseline:
        proof = _proof(study, last, table, gains, promised_percent)
    changed = winner is not baseline and (proof is None or proof.holds)
    answer, side = (winner, WINNER) if changed else (baseline, BASELINE)
    rows = _rows_of_sides(table, study.objective.on)
    _, basis = study.objective.metric_and_basis
    run_id = _first_run(rows[side])
    manifests = {name: _manifest(runs_folder, row) for name, row in rows.items()}
    started = {name: _launch_command(each) for name, each in manifests.items() if each}
    manifest = manifests[side]
    answers = found_in(rows[side])
    of_side: list[Row] = table[table["candidate"] == answer.candidate].to_dict("records")  # type: ignore[assignment]
    untold, left_out = _ended(decisions, CANNOT_TELL), _ended(decisions, NOT_RUN) if isinstance(study, Study) else []
    notes = (
        _note(answer.configuration.model, answers),
        measurement_note(study, last, changed, of_side),
        last.limited if isinstance(last, Plan) else None,
        f"The search could not judge {', '.join(untold)}, as runs were disturbed." if untold else None,
        f"The budget left out {len(left_out)} of the search's candidates." if left_out else None,
        _effective_note(study, baseline.configuration, answer.configuration),
    )
    deployment = {}
    if isinstance(study, Study) and answer.configuration.replicas > 1:
        entry = study.engines[answer.configuration.engine].engine or answer.configuration.engine
        flag = str(ENGINES.get(entry).port_flag)
        deployment = forms(study, answer.configuration, answer.command, flag, manifest)
    if proof and started.get(WINNER):
        proof = proof.model_copy(update={"proposed_command": started[WINNER]})
    return Recommended(
        study=study.study,
        command=deployment.get("script", answer.command),
        deployment=deployment,
        launch_command=started.get(side),
        note=" ".join(filter(None, notes)) or None,
        engine=study.engines[answer.configuration.engine].engine or answer.configuration.engine,
        engine_version=study.engines[answer.configuration.engine].version,
        model=study.model.variant_id(answer.configuration.model),
        served_on=manifest and _served_on(manifest),
        environment_variables=answer.configuration.environment_variables,
        configuration=answer.configuration,
        changed=changed,
        baseline_unfit=None if proof or changed else ": ".join(unfit(study, rows[BASELINE]) or ()) or None,
        evidence=FROM_LOGS if not isinstance(study, Study) else PROVED if proof else NOTHING_TO_PROVE,
        proof=proof,
        objective=study.objective.name,
        per=basis,
        improvements=gains if changed else [],
        answers=answers,
        untold=untold,
        changed_answers=_changed_answers(study, decisions, last, rows.get(WINNER), promised_percent),
        winner_maps=winner_maps(study, table),
        **_validity(rows[side], rows[BASELINE]),
        run_id=run_id,
        baseline_run_id=_first_run(rows[BASELINE]),
    )


def _proof(
    study: Study, last: SearchedPlan, table: pd.DataFrame, gains: Sequence[Improvement], promised: float | None
) -> Proof:
    winner = last.candidates[-1]
    wanted = study.proof.within_percent
    return Proof(
        **judge(study, table, promised).model_dump(),
        wanted_half_width_percent=wanted if promised is None else asked_half_width_percent(promised, wanted),
        candidate=last.proposed if isinstance(last, Plan) else None,
        proposed=winner.configuration,
        proposed_command=winner.command,
        proposed_run_id=_first_run(_rows_of_sides(table, study.objective.on)[WINNER]),
        workloads=list(gains),
    )


def _gains(
    study: SearchedStudy,
    last: SearchedPlan,
    table: pd.DataFrame,
    improvements: pd.DataFrame,
    titles: Mapping[str, str],
) -> list[Improvement]:
    """The winner against the baseline on each workload."""
    metric, basis = study.objective.metric_and_basis
    figures = improvements[
        (improvements["stage"] == last.stage)
        & (improvements["metric"] == metric)
        & (improvements["basis"] == basis)
        & (improvements["evidence"] != SEARCH)
    ]
    gains = []
    for workload in study.workloads:
        rows = _rows_of_sides(table, workload)
        if not {BASELINE, WINNER} <= rows.keys():
            continue
        row = _improvement_row(figures[figures["workload"] == workload], list(rows.values()), metric, basis)
        row |= {"workload": workload, "metric": study.objective.name, "title": titles[workload]}
        row |= _validity(rows[WINNER], rows[BASELINE])
        gain = Improvement.model_validate(row)
        if isinstance(study, Study):
            found = judge(study, table, None, workload)
            update: dict[str, Any] = {"verdict": found.verdict, "verdict_why": found.why}
            update |= {"smallest_change_percent": found.smallest_change_percent}
        else:
            update = dict(zip(("verdict", "verdict_why"), _of_logs(study, gain), strict=True))
        gains.append(gain.model_copy(update=update))
    return gains


def _of_logs(study: SearchedStudy, gain: Improvement) -> tuple[str, str]:
    """Verdict on a workload and its reason, from the logs of a recorded study."""
    if gain.change_percent is None:
        return FAILED, str(gain.failed)
    return compare(study, gain.change_percent, gain.change_ci95_low_percent, gain.change_ci95_high_percent)


def _improvement_row(found: pd.DataFrame, rows: Sequence[Row], metric: str, basis: Basis) -> dict[str, Any]:
    """The fields of an `Improvement` that are figures, or why there are none."""
    if not found.empty:
        row: dict[Any, Any] = found.to_dict("records")[0]
        differs = row["unequal_places"]
        return {**row, "n": int(row["starts"]), "unequal_places": None if pd.isna(differs) else differs}
    failed = "; ".join(
        f"{row['candidate']}: {row['reason']}: {row['message']}" for row in rows if row["outcome"] != "ok"
    )
    nothing = {**dict.fromkeys(_NUMBERS), "metric": metric, "basis": basis, "n": 0}
    return nothing | {"failed": failed or "no pair of server starts counts", "value": rows[-1]["objective_value"]}


def _rows_of_sides(table: pd.DataFrame, workload: str) -> dict[str, Row]:
    """`baseline` and `winner` → their row on a workload."""
    rows: list[Row] = table[table["workload"] == workload].to_dict("records")  # type: ignore[assignment]
    return {row["candidate"]: row for row in rows}


def _first_run(row: Row) -> str:
    """The first run of a row; empty for a configuration that was refused before any run."""
    return str(row["run_id"]) if pd.notna(row["run_id"]) else ""


def _manifest(runs_folder: Path | None, row: Row) -> RunManifest | None:
    """Of the first run of a row; None where nothing ran here."""
    run_id = _first_run(row)
    return RunManifest.read(runs_folder / run_id / "manifest.json") if runs_folder and run_id else None


def _changed_answers(
    study: SearchedStudy,
    decisions: Sequence[Decision],
    last: SearchedPlan,
    proved: Row | None,
    promised_percent: float | None,
) -> list[ChangedAnswers]:
    """Candidates that would be faster, and change answers, in the search or in their proof; each once.

    `proved` is the row of the proof's winner, with what the search promised for it; None if there is none.
    """
    sign = study.objective.sign
    found: dict[str, ChangedAnswers] = {}
    for decision in decisions:
        for each in decision.candidates:
            is_faster = each.change_percent is not None and sign * each.change_percent > 0
            if each.verdict == CHANGES_ANSWERS and is_faster and each.candidate not in found:
                found[each.candidate] = ChangedAnswers(
                    stage=decision.stage, candidate=each.candidate, change_percent=each.change_percent, why=each.why
                )
    if not isinstance(last, Plan):
        return list(found.values())
    if last.left_out is not None:
        out = ChangedAnswers(stage=CONFIRM_FIRST, **last.left_out.model_dump())
        found[out.candidate] = out
    if proved is not None and proved.get("answers") == CHANGES_ANSWERS and last.proposed is not None:
        found[last.proposed] = ChangedAnswers(
            stage=last.stage,
            candidate=last.proposed,
            change_percent=promised_percent,
            why=str(proved["answers_note"]),
        )
    return list(found.values())


def _note(variant: str, answers: AnswersFound | None) -> str | None:
    """A note if the answer serves other weights than the model's own, whose answers were not measured."""
    if variant == "base" or answers is not None:
        return None
    return f"It serves the weights of variant {variant}: speed was measured, the quality of the answers was not."


def _effective_note(study: SearchedStudy, before: Configuration, after: Configuration) -> str | None:
    """In what the answer differs from the baseline as the engine serves it, where defaults hide that."""
    changes = effective_changes(study, before, after) if isinstance(study, Study) else None
    return f"What differs from the baseline as the engine serves it: {shown(changes)}." if changes else None


def _ended(decisions: Sequence[Decision], verdict: str) -> list[str]:
    """Candidates of the search whose last verdict is this one."""
    found = {each.candidate: each.verdict for decision in decisions for each in decision.candidates}
    return [candidate for candidate, last in found.items() if last == verdict]


def _served_on(manifest: RunManifest) -> str | None:
    devices = [*manifest.devices, *(device for node in manifest.other_nodes for device in node.devices)]
    machine = manifest.machine
    if [device.name for device in devices] == [machine.cpu]:
        return f"{machine.cpu} ({machine.cpus_usable} CPUs)"  # one accelerator, in figures per accelerator
    return ", ".join(f"{count} × {name}" for name, count in Counter(each.name for each in devices).items()) or None


def _launch_command(manifest: RunManifest) -> str | None:
    """The command as it ran, after its environment variables, from the run's manifest.

    None if nothing was started, or if it ran on several nodes: each had its own.
    """
    if not manifest.command or manifest.other_nodes:
        return None
    if manifest.replicas:
        return launched(manifest)
    variables = [f"{name}={value}" for name, value in sorted(manifest.environment_variables.items())]
    return shlex.join([*(["env", *variables] if variables else []), *manifest.command])


def _validity(row: Row, baseline: Row) -> dict[str, Any]:
    """Validity of a side's runs and of the baseline's on a workload; nulls if they failed."""
    return {
        f"{side}{column}": None if pd.isna(found[column]) else found[column]
        for side, found in (("", row), ("baseline_", baseline))
        for column in ("validity", "validity_note")
    }
