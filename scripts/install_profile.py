"""Installs the profile `slurm` with a site of config/sites, so that `snakemake --profile slurm` finds it."""

import argparse
from pathlib import Path

from snakemake.cli import get_profile_dir
from snakemake.common import get_appdirs

from servelab.core.cli import run
from servelab.core.errors import ConfigError
from servelab.core.files import write_text
from servelab.core.registry import nearest
from servelab.study.site import load_site
from servelab.workflow.placement import SITES

ROOT = Path(__file__).parents[1]
_PROFILE = Path("profiles/slurm/config.yaml")
_CONFIG = "servelab.yaml"
_MARK = "# A profile of Servelab"


def install_profile(site: str, profiles: Path, name: str, root: Path) -> Path:
    """Writes profile `name` for a site of the checkout `root` below the folder `profiles`; the file that it wrote.

    A former profile of Servelab is replaced; `ConfigError` if the site is wrong or the name is another profile's.
    """
    file = root / SITES / f"{site}.yaml"
    if not file.exists():
        known = sorted(path.stem for path in (root / SITES).glob("*.yaml"))
        raise ConfigError(f"{file}: no such site{nearest(site, known)}; docs/cluster.md says how to write one")
    if not load_site(file).is_cluster:
        raise ConfigError(f"{file}: names no partitions; add `accelerators` or `devices` (docs/cluster.md)")
    folder = profiles.absolute() / name
    profile = folder / "config.yaml"
    others = [path for path in folder.glob("*.yaml") if not path.read_text(encoding="utf-8").startswith(_MARK)]
    if others:
        fix = f"give another name (`--name servelab-{name}`, then `--profile servelab-{name}`), or move it away"
        raise ConfigError(f"{others[0]}: another profile has the name `{name}`; {fix}")
    mark = f"{_MARK}, written by `python scripts/install_profile.py {site}`, which writes it again.\n"
    # A file of configuration, as `--config` on the command line would replace all of a profile's `config`.
    settings = (root / _PROFILE).read_text(encoding="utf-8") + f"# The site.\nconfigfile: {folder / _CONFIG}\n"
    copy = folder / "sites" / file.name
    copy.parent.mkdir(parents=True, exist_ok=True)
    write_text(copy, f"{mark}# For checkouts without {SITES / file.name}.\n{file.read_text(encoding='utf-8')}")
    write_text(folder / _CONFIG, f"{mark}site: {site}\nsite_file: {copy}\n")
    write_text(profile, mark + settings)
    return profile


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
