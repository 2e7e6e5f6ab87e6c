"""The first screen of a report: the answer in a sentence, what it rests on and cost, and the command to use.

The command comes in forms that start as they are printed.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from servelab.core.credentials import shown
from servelab.core.figure_text import duration, figure, metric_label, runs_text
from servelab.machine.devices import DEVICES, Device
from servelab.report.charts.curves import AT
from servelab.report.page import fenced, markdown_text
from servelab.report.stages_section import Origin
from servelab.results.past_runs import split_text
from servelab.search.recommended import Recommended
from servelab.study.project import StudySummary
from servelab.study.study import AFTER_SEARCH, LAST_STAGES

_WORDS = re.compile(r"\S+|\s+")
"""Of a command, with the white space between them."""
_OF_SEVERAL = {"script": "Script of all servers", "sbatch": "Slurm script", "compose": "Compose file"}
"""Form of `Recommended.deployment` → its title."""
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL | re.ASCII)


@dataclass(frozen=True)
class CommandForm:
    """The recommended command as text to copy."""

    title: str
    pieces: list[tuple[str, bool]]
    """The text in words and white space, and whether each is in no part of the baseline's command."""

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(piece for piece, _ in self.pieces)


def forms_of(study: StudySummary, recommended: Recommended, origin: Origin, baseline: str) -> list[CommandForm]:
    """The forms of the recommended command, the best for this machine first; `baseline` is the baseline's command."""
    changed = parts_of(recommended.command) - parts_of(baseline) if baseline and recommended.changed else Counter()
    manifest = origin.manifest(recommended.run_id)
    image = manifest.environment.image if manifest else None
    forms = {"With the model's name in place of its path": recommended.command}
    if recommended.deployment and origin.model_has_name(recommended.run_id):
        forms = {_OF_SEVERAL[name]: text for name, text in recommended.deployment.items()}
    elif origin.model_has_name(recommended.run_id):
        if image is not None:
            forms["Docker"] = docker_form(study, recommended, image)
        if study.hardware.nodes == 1:
            forms["Slurm script"] = slurm_form(study, recommended, image)
    elif recommended.launch_command is not None:
        forms = {"On this machine, as it was measured": recommended.launch_command}
    return [CommandForm(title, _pieces(text, changed)) for title, text in forms.items()]


def docker_form(study: StudySummary, recommended: Recommended, image: str) -> str:
    """`docker run` with the measured image, on the host's network and shared memory.

    The model comes from the hub by its name, through the host's cache.
    """
    needs = DEVICES.get(study.hardware.device).passthrough(_devices(study, recommended.configuration.accelerators))
    variables, (program, *arguments) = _split(recommended.command)
    lines = [
        "docker run --rm --network host --ipc host",
        shlex.join(needs.flags.get("docker", ())),
        " ".join(shlex.join(["--device", node]) for node in needs.nodes),
        *(shlex.join(["--volume", f"{path}:{path}:ro"]) for path in needs.mounts),
        '--volume "$HOME/.cache/huggingface:/root/.cache/huggingface"',
        *(shlex.join(["--env", f"{name}={value}"]) for name, value in variables.items()),
        shlex.join(["--entrypoint", program, image]),
        shlex.join(arguments),
    ]
    return " \\\n  ".join(filter(None, lines))


def slurm_form(study: StudySummary, recommended: Recommended, image: str | None) -> str:
    """A script for `sbatch`; if the command was measured in a container, Apptainer runs the same image."""
    kind, count = DEVICES.get(study.hardware.device), recommended.configuration.accelerators
    variables, words = _split(recommended.command)
    lines = [
        "#!/bin/bash",
        f"#SBATCH --job-name=serve-{study.study}",
        "#SBATCH --nodes=1",
        "#SBATCH --ntasks=1",
        f"#SBATCH {f'--gres={kind.gres[0]}:{count}' if kind.gres else '--exclusive'}",
        "# Your cluster may need more: partition, account, time limit, CPUs, memory.",
    ]
    start = ["srun"]
    if image:
        flags = kind.passthrough(_devices(study, count)).flags.get("apptainer", ())
        start += ["apptainer", "exec", *flags, f"docker://{image}"]
    else:
        needs = " ".join(f"{recommended.engine} {recommended.engine_version}".split())
        lines.append(f"# Submit it from an environment that has {needs}.")
    lines += [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    return "\n".join([*lines, f"{shlex.join(start)} \\\n  {shlex.join(words)}"])


def _devices(study: StudySummary, count: int) -> list[Device]:
    """The first devices of a machine, by their index."""
    return [Device(index=str(index), key=str(index), name=study.hardware.device) for index in range(count)]


def _split(command: str) -> tuple[dict[str, str], list[str]]:
    """Environment variables of a command, and its program and arguments."""
    words, variables = shlex.split(command), {}
    while words and (found := _ASSIGNMENT.fullmatch(words[0])):
        variables[found[1]] = found[2]
        words = words[1:]
    return variables, words


def parts_of(command: str) -> Counter[str]:
    """Options of a command, each with its values, and its environment variables."""
    parts: list[list[str]] = []
    for word in shlex.split(command):
        if parts and parts[-1][0].startswith("-") and not word.startswith("-"):
            parts[-1].append(word)
        else:
            parts.append([word])
    return Counter(shlex.join(part) for part in parts)


def only_in(baseline: str, command: str) -> str:
    """Parts of the baseline's command that the other lacks, in order; empty if it has all."""
    left = parts_of(baseline) - parts_of(command)
    return "  ".join(part for part in left if part.startswith("-") or "=" in part)


def difference(form: CommandForm, left_out: str) -> dict[str, str]:
    """How a form differs from the baseline's command, `left_out` of it: words → command."""
    marked = {"Marked: not in the baseline’s command.": ""} if any(changed for _, changed in form.pieces) else {}
    instead = "Instead of:" if marked else "The baseline’s command has instead:"
    return marked | ({instead: left_out} if left_out else {})


def _pieces(text: str, changed: Counter[str]) -> list[tuple[str, bool]]:
    """The text in words and white space, and whether each is in a changed part.

    The value of an option may be another one here, such as a path in place of a name.
    """
    spans: list[tuple[int, int]] = []
    for part in changed:
        name, *values = part.split()
        exact = _found(text, r"\s+".join(map(re.escape, (name, *values))))
        spans += exact or (_found(text, re.escape(name) + r"\s+\S+" * len(values)) if name.startswith("-") else [])
    return [
        (word.group(), not word.group().isspace() and any(low <= word.start() < high for low, high in spans))
        for word in _WORDS.finditer(text)
    ]


def _found(text: str, pattern: str) -> list[tuple[int, int]]:
    return [each.span() for each in re.finditer(rf"(?<!\S)(?:{pattern})(?!\S)", text)]


def baseline_command(table: pd.DataFrame) -> str:
    """The baseline's command; empty if it is unknown. `table` has rows of schemas.STAGE_TABLE."""
    rows = table[(table["position"] == 0) & table["command"].astype(bool)]
    return next(map(str, [*rows[rows["stage"].isin(LAST_STAGES)]["command"], *rows["command"]]), "")


def answer_facts(
    study: StudySummary, recommended: Recommended, search: pd.DataFrame | None, *, pair: str, is_recorded: bool
) -> dict[str, str]:
    """The load that the answer is for, how sure it is, and its cost: title → text.

    `search` has rows of schemas.SEARCH, `pair` is what a pair of the proof consists of.
    """
    used = recommended.served_on or f"{recommended.configuration.accelerators} × {study.hardware.accelerator}"
    proof = recommended.proof
    by = f"by {proof.pairs} {pair}" if proof and proof.pairs else "without a comparison"
    facts = {
        "Serves": f"{recommended.model} on {used}, with {recommended.engine} {recommended.engine_version}",
        "Measured on": study.workloads[study.objective.on] + _load_text(study),
        "Proof": recommended.evidence if proof is None else f"{proof.verdict}, {by}",
    }
    return facts if search is None else facts | {"Cost": search_cost(search, is_recorded)}


def _load_text(study: StudySummary) -> str:
    """The protocol's load and the limits, as `, at most 64 in flight a node, within TTFT 500 ms a request`."""
    own = AT if study.objective.metric.startswith("capacity_") else study.loads.get(study.objective.on, {})
    part = " a node" if study.objective.load_per == "node" else ""
    sent = {of: getattr(study.protocol, of, None) for of in AT.keys() - own}
    load = "".join(f", {AT[of].format(each)}{part}" for of, each in sorted(sent.items()) if each not in (None, "inf"))
    found = [
        f"{metric_label(name).removesuffix(' (ms)')} {figure(limit)} ms a request"
        for name, limit in study.slos_of(study.objective.on).items()
    ]
    for metric, limits in study.objective.constraints.items():
        found += [f"{statistic} {metric_label(metric)} {figure(limit)}" for statistic, limit in limits.items()]
    return load + (f", within {', '.join(found)}" if found else "")


def search_cost(search: pd.DataFrame, is_recorded: bool) -> str:
    """The whole study in one line: accelerator time, runs, candidates and their outcomes.

    `search` has rows of schemas.SEARCH; a run that several stages use counts once. Recorded logs give only the time
    under load.
    """
    first = search["run_ids"].str[0]  # a later stage may list a candidate again
    tried = search[~search["is_incumbent"] & ~search["stage"].isin(AFTER_SEARCH) & (first.isna() | ~first.duplicated())]
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in tried["outcome"].value_counts(sort=False).items())
    runs = len({run_id for run_ids in search["run_ids"] for run_id in run_ids})
    held_s, load_s = (float(search[name].sum()) for name in ("new_accelerator_s", "new_load_accelerator_s"))
    counted = f"{len(tried):,} candidate{'' if len(tried) == 1 else 's'} ({outcomes}), {runs_text(runs)} in all"
    if not held_s:
        return counted
    if is_recorded:
        return f"{duration(load_s)} of accelerator time under load, {counted}"
    decides, start = (float(search[name].sum()) for name in ("new_deciding_accelerator_s", "new_start_accelerator_s"))
    split = split_text({"deciding load": decides, "other loads": load_s - decides, "start-up": start}, held_s)
    return f"{duration(held_s)} of accelerator time ({split}); {counted}"


def card(title: str, answer: str, lines: Sequence[str], command: str) -> str:
    """`report.md`, to paste into a pull request or a chat; GitHub, GitLab and chats show it."""
    said = "".join(f"- {markdown_text(line)}\n" for line in lines if line)
    return shown(f"**{markdown_text(answer)}**\n\n{markdown_text(title)}\n\n{said}\n{fenced(command)}\n")
