"""The command as a batch job of Slurm."""

from __future__ import annotations

from servelab.report.forms import FORMS, Deployment, Form, assigned, comment, continued


def build(deployment: Deployment) -> str:
    """A script for `sbatch`; where it was measured in a container, Apptainer runs the same image."""
    kind = deployment.kind
    resource = f"--gres={kind.gres[0]}:{deployment.accelerators}" if kind.gres else "--exclusive"
    lines = [
        "#!/bin/bash",
        f"#SBATCH --job-name=serve-{deployment.study}",
        "#SBATCH --nodes=1",
        "#SBATCH --ntasks=1",
        f"#SBATCH {resource}",
        *comment("Add what your cluster wants beside it: partition, account, time limit, CPUs, memory."),
    ]
    start = ["srun"]
    if deployment.image:
        flags = kind.passthrough(deployment.devices).flags.get("apptainer", ())
        start += ["apptainer", "exec", *flags, f"docker://{deployment.image}"]
        lines += comment(deployment.image_remark)
    else:
        lines += comment(f"Activate an environment that has {deployment.release} here.")
    lines += [f"export {assigned(name, value)}" for name, value in deployment.variables.items()]
    lines.append(continued([start, deployment.words]))
    return "\n".join(lines)


FORMS.register("slurm", Form("slurm", "Slurm script", 2, "sh", build))
