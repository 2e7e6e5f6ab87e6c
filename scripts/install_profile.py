"""Installs the profile `slurm` with a site of config/sites, so that `snakemake --profile slurm` finds it."""

import argparse
from pathlib import Path

from snakemake.cli import get_profile_dir
from snakemake.common import get_appdirs

from servelab.core.cli import run
from servelab.core.errors import ConfigError
from servelab.workflow.placement import install_profile

ROOT = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", help="name of a site, config/sites/<site>.yaml")
    parser.add_argument("--name", default="slurm", help="name of the profile (slurm)")
    arguments = parser.parse_args()

    profiles = Path(get_appdirs().user_config_dir)  # Snakemake's own answer; it follows XDG_CONFIG_HOME
    profile = install_profile(arguments.site, profiles, arguments.name, ROOT)
    found = get_profile_dir(arguments.name)
    if found is None or found[1].resolve() != profile.resolve():
        shadow = found[1].resolve() if found else None
        raise ConfigError(f"{profile}: Snakemake finds {shadow} first by this name from here; give another `--name`")
    print(f"{profile}: written. Start with `snakemake --profile {arguments.name}`, in this checkout or another.")


if __name__ == "__main__":
    run(main)
