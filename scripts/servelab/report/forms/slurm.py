"""The command as a Slurm batch job, if the model has a name on the hub."""

from __future__ import annotations

from servelab.report.forms import FORMS, Deployment, Form, assigned, continued


def build(deployment: Deployment) -> str | None:
    """A script for `sbatch`; if the command was measured in a container, Apptainer runs the same image."""
    if not deployment.model_has_name or deployment.nodes > 1:
        return None
    kind = deployment.kind
    resource = f"--gres={kind.gres[0]}:{deployment.accelerators}" if kind.gres else "--exclusive"
    lines = [
        "#!/bin/bash",
        f"#SBATCH --job-name=serve-{deployment.study}",
        "#SBATCH --nodes=1",
        "#SBATCH --ntasks=1",
        f"#SBATCH {resource}",
        "# Your cluster may need more: partition, account, time limit, CPUs, memory.",
    ]
    start = ["srun"]
    if deployment.image:
        flags = kind.passthrough(deployment.devices).flags.get("apptainer", ())
        start += ["apptainer", "exec", *flags, f"docker://{deployment.image}"]
    else:
        lines.append(f"# Submit it from an environment that has {deployment.engine} {deployment.engine_version}.")
    lines += [f"export {assigned(name, value)}" for name, value in deployment.variables.items()]
    lines.append(continued([start, deployment.words]))
    return "\n".join(lines)


FORMS.register("slurm", Form("slurm", "Slurm script", 3, build))
