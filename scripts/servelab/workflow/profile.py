"""The profile for a cluster, with its site, in the folder where Snakemake looks for profiles by their name."""

from __future__ import annotations

from pathlib import Path

from servelab.core.errors import ConfigError
from servelab.core.files import write_text
from servelab.core.registry import nearest
from servelab.study.site import load_site

SITES = Path("config/sites")
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
        fix = (
            f"give another name (`--name servelab-{name}`, for `snakemake --profile servelab-{name}`), or move it away"
        )
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


def file_of_site(site: object, installed: object) -> Path:
    """The file of a site: the checkout's, or the one installed with the profile if the checkout has none."""
    own = SITES / f"{site}.yaml"
    return own if installed is None or own.exists() else Path(str(installed))
