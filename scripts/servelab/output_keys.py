"""Keys of the JSON files that a study leaves, and what they hold; units are in their names. See `output_files`."""

from __future__ import annotations

RUN = "Run: the name of its folder, a hash of its specification."
SPEC = {
    "engine": "Engine, version, runtime, and the sha256 of its environment's lock or its image's digest.",
    "model": "Model, where its weights are from, their format, quantisation and conversion.",
    "options": "Options of the shared vocabulary (engines.md).",
    "arguments": "The engine's own arguments.",
    "environment_variables": "Environment variables of the server.",
    "hardware": "Accelerator, kind of device, and how many.",
    "workload": "Kind of workload, its parameters (seed and dataset's sha256 among them), tokenizer, generator.",
    "objective": "Metric whose interval ends the rounds.",
    "slos": "Its limits, where it has any.",
    "client": "Load client, version, and the sha256 of its environment's lock.",
    "protocol": "Warm-up, rounds, arrivals, limits in flight and in time (studies.md).",
}
STATUS = {
    "run_id": RUN,
    "outcome": "`ok` or `failed`.",
    "reason": "Why it failed: see below; null for `ok`.",
    "message": "The telling line of a failure, or how many requests failed.",
    "log_lines": "Lines of the server's log around it.",
    "rounds": "Rounds measured.",
    "requests": "Requests of all rounds.",
    "requests_failed": "Of these failed.",
    "success_rate": "Successful requests / requests.",
    "objective_rounds": "The objective in each round, in the metric's unit.",
    "client_rounds": "What each round cost the load client: `wall_s`, `cpu_s`, how late it read (`unread_p99_ms`), …",
    "server_starts": "How often the server was started.",
    "startup_s": "Seconds until it was healthy, of all starts.",
    "load_s": "Seconds under load, all rounds.",
    "accelerator_s": "Accelerator-seconds held.",
    "started_at": "ISO 8601, UTC.",
    "finished_at": "ISO 8601, UTC.",
}
MANIFEST = {
    "run_id": RUN,
    "engine": "Engine, and its own word for its version.",
    "environment": "Runtime, image, lock's sha256, version of every package.",
    "command": "The server's command as it ran.",
    "environment_variables": "Environment variables it ran with, beside the machine's.",
    "model": "Format, source, conversion.",
    "workload": "sha256 of the requests, and their seed.",
    "client": "Load client, version, environment.",
    "devices": "Accelerators it had: index, name, driver, `memory_bytes`.",
    "placement": "Cores, NUMA nodes, ports, and what a batch system gave (devices.md).",
    "machine": "CPU, cores, `memory_bytes`, kernel, architecture, Python.",
    "git": "Commit of the workflow, and whether tracked files were changed.",
}
PLAN = {
    "study": "Study.",
    "stage": "Stage.",
    "title": "Its heading.",
    "applies": "Whether it applies to the incumbent.",
    "reason": "Why not.",
    "load_divisor": "1 where the whole workload is put on; otherwise one of so many parts of its requests (search.md).",
    "candidates": "Candidates, the incumbent first: configuration, command, why one is refused, and their runs with "
    "specification and run id.",
}
DECISION = {
    "study": "Study.",
    "stage": "Stage.",
    "title": "Its heading.",
    "applies": "Whether it applied to the incumbent.",
    "reason": "Why it ended so.",
    "incumbent": "Where the stage started: candidate and run.",
    "winner": "Where it ended.",
    "changed": "Whether these differ.",
    "survivors": "Candidates that the next stage tries with more load, where the search halves; empty otherwise.",
    "objective": "Metric the study improves.",
    "margin_percent": "Smaller gains do not move the search.",
    "candidates": "Each candidate's verdict, `change_percent` on the incumbent with its 95 % interval, and why.",
}
RECOMMENDED = {
    "study": "Study.",
    "command": "The serving command to use.",
    "launch_command": "As it ran here; null where nothing ran.",
    "note": "What has to be said of other weights than the model's own.",
    "engine": "Engine.",
    "engine_version": "Engine's version.",
    "model": "Model that it serves.",
    "environment_variables": "Environment variables of the server.",
    "configuration": "The configuration in the study's own names.",
    "changed": "Whether it is another than the baseline.",
    "objective": "Metric the study improves.",
    "per": "Basis of its figures: `deployment`, `accelerator` or `node`.",
    "improvements": "The gain on each workload: values in the metric's unit, `change_percent` with its 95 % interval.",
    "max_loss_percent": "A winner that loses more on a workload is shown as such.",
    "by_workload": "What to use on each workload, the winner or another candidate, and why.",
    "validity": "What the checks made of the winner's run on the workload that decides.",
    "validity_note": "What those saw that are not ok.",
    "baseline_validity": "The same of the baseline's run.",
    "baseline_validity_note": "What those saw that are not ok.",
    "run_id": "The winner's run on the workload that decides.",
    "baseline_run_id": "The baseline's.",
}
STUDY = {
    "study": "Name.",
    "title": "Heading of the report.",
    "model": "Model and variants.",
    "hardware": "Accelerator, kind of device, accelerators of a node.",
    "engines": "Engines with their versions.",
    "objective": "Metric, basis, margin, workload that decides.",
    "search": "Strategy, re-check, and what ends the search; not in a recorded study.",
    "protocol": "How the load is put on; not in a recorded study.",
    "client": "Load client; not in a recorded study.",
    "baseline": "What everything is compared with.",
    "stages": "Name, title and candidates of each stage.",
    "workloads": "Name → title.",
    "source": "Where a recorded study was published.",
    "note": "What is to be said of a recorded study.",
}
PAIR = {"a": "Specification of the incumbent.", "b": "Specification of the candidate.", "cycles": "A/B/B/A cycles."}
PLANNED_PAIR = {
    "study": "Study.",
    "stage": "Stage.",
    "candidate": "Who is measured again; null where nobody is.",
    "reason": "Why.",
    "pair_id": "The pair: a hash of it.",
    "pair": "Both specifications, and the number of cycles.",
}
PAIR_STATUS = {
    "pair_id": "The pair.",
    "order": "Side of each round.",
    "outcome": "`ok` or `failed`.",
    "failed_side": "`a` or `b`.",
    "message": "The telling line of the failure.",
    "accelerator_s": "Accelerator-seconds held.",
}
ANSWER = {
    "versions": "Every engine with version and environment.",
    "question": "Hash of all else that the study asks.",
    "winner": "Label of the winner.",
    "value": "Its objective on the workload that decides, in the metric's unit, on the study's basis.",
    "ci95_low": "Lower end of its 95 % interval.",
    "ci95_high": "Upper end of it.",
    "measured_at": "When the later of winner and baseline ended, ISO 8601.",
    "recommended": "The content of `recommended.json`.",
}
WORKLOAD = {
    "workload_id": "Hash of its specification.",
    "spec": "Kind, parameters, tokenizer, generator's version.",
    "requests_sha256": "Of `requests.parquet`.",
    "requests": "Requests of the measured phase.",
    "input_tokens": "Their tokens, in the model's own.",
    "output_tokens": "Output tokens to force.",
}
DATASET = {
    "name": "Name in `config/datasets.yaml`.",
    "title": "What it is.",
    "path": "Its file, beside this one.",
    "source": "Where it is from.",
    "sha256": "Of the file.",
    "size_bytes": "Of the file.",
    "records": "Records in it.",
    "license": "Its licence.",
    "part_of": "The dataset it is a part of, where it is one.",
}
MODEL = {
    "path": "Weights, beside this file.",
    "format": "Their format.",
    "tokenizer": "Tokenizer, beside this file.",
    "source": "Where they are from.",
    "conversion": "What was done to them, null for nothing.",
}
ENVIRONMENT = {
    "tool": "Engine or load client.",
    "version": "Its own word for its version.",
    "runtime": "What it runs in.",
    "python": "Interpreter or program, relative to this folder.",
    "lock_sha256": "sha256 of what describes the environment.",
    "packages": "Version of every package.",
    "variables": "Environment variables it needs.",
    "image": "Container image, where it is one.",
}
