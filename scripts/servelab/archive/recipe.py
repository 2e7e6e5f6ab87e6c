"""The study file that reruns an archived study: all defaults written out, with digests of everything it refers to."""

from __future__ import annotations

from pathlib import Path

import yaml

from servelab.archive.contents import LIVE, Contents
from servelab.core.identity import canonical_json, workload_id
from servelab.search.project import load_project
from servelab.study.project import Project

HEAD = """\
# The study as it was run, with every default written out. With this workflow and these digests it plans the same runs
# under the same names: put it into config/studies/ of the archive's workflow/.
"""


def recipe(root: Path, contents: Contents) -> dict[str, str]:
    """Text of the recipe by its file name; nothing for a recorded study, whose logs cannot be rerun.

    `servelab.study.study.load_study` loads it. Locks, workloads and data sets are in the archive's `workflow/`.
    """
    search = contents.searches[0]
    if not search.startswith(f"{LIVE}/"):
        return {}
    project = load_project(root / f"config/{search}.yaml", root)
    content = project.study.model_dump(mode="json", exclude_none=True)
    for alias, engine in content["engines"].items():
        engine["lock"] = project.lock(alias).relative_to(root).as_posix()
    lines = [HEAD, *(f"# {line}\n" for line in _digests(project, root)), "\n"]
    return {
        f"{project.study.study}.yaml": "".join(lines) + yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    }


def _digests(project: Project, root: Path) -> list[str]:
    """Hashes of what the study names; workloads also with their parameters, the seed among them."""
    lines = []
    for alias in project.study.engines:
        lines.append(f"{project.lock(alias).relative_to(root)}: sha256 {project.environment_sha256(alias)}")
    client = project.client_spec()
    lines.append(f"load client {client.name} {client.version}")
    if client.environment_sha256 and project.client_lock:
        lines.append(f"{project.client_lock.relative_to(root)}: sha256 {client.environment_sha256}")
    for name in project.study.workloads:
        spec = project.workload_spec(name)
        made = f"{spec.kind} {spec.generator_version} with {canonical_json(spec.parameters)}"
        lines.append(f"workload {name}: {workload_id(spec)}, {made}")
    return lines
