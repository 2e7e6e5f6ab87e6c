"""The installed profile: where Snakemake looks for it, with the site, and over no profile of somebody else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from install_profile import install_profile

from servelab.core.errors import ConfigError
from servelab.workflow.placement import file_of_site

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "a checkout"
    for name in ("profiles/slurm/config.yaml", "config/sites/example.yaml"):
        (folder / name).parent.mkdir(parents=True)
        shutil.copy2(ROOT / name, folder / name)
    return folder


def test_it_has_the_profiles_settings_and_the_site_and_can_be_written_again(checkout, tmp_path):
    for _ in range(2):
        profile = install_profile("example", tmp_path / "profiles", "slurm", checkout)
    assert profile == tmp_path / "profiles/slurm/config.yaml"
    content = yaml.safe_load(profile.read_text())
    settings = yaml.safe_load(Path(content.pop("configfile")).read_text())
    assert content == yaml.safe_load((ROOT / "profiles/slurm/config.yaml").read_text())
    assert settings["site"] == "example"
    installed = Path(settings["site_file"])
    original = yaml.safe_load((checkout / "config/sites/example.yaml").read_text())
    assert yaml.safe_load(installed.read_text()) == original
    assert installed.is_relative_to(tmp_path / "profiles/slurm")


def test_a_checkouts_own_site_comes_first(checkout, monkeypatch):
    monkeypatch.chdir(checkout)
    assert file_of_site("example", "/profile/sites/example.yaml") == Path("config/sites/example.yaml")
    assert file_of_site("other", "/profile/sites/other.yaml") == Path("/profile/sites/other.yaml")
    assert file_of_site("other", None) == Path("config/sites/other.yaml")


def test_a_profile_of_somebody_else_stays(checkout, tmp_path):
    mine = tmp_path / "profiles/slurm/config.v8+.yaml"
    mine.parent.mkdir(parents=True)
    mine.write_text("jobs: 3\n")
    with pytest.raises(ConfigError, match=r"config.v8\+.yaml: another profile has the name `slurm`; .*--name"):
        install_profile("example", tmp_path / "profiles", "slurm", checkout)
    assert [path.name for path in mine.parent.iterdir()] == [mine.name] and mine.read_text() == "jobs: 3\n"


def test_a_wrong_site_installs_nothing(checkout, tmp_path):
    with pytest.raises(ConfigError, match="did you mean `example`"):
        install_profile("exampel", tmp_path / "profiles", "slurm", checkout)
    (checkout / "config/sites/ours.yaml").write_text("site: example\n")
    with pytest.raises(ConfigError, match="must be the file's name"):
        install_profile("ours", tmp_path / "profiles", "slurm", checkout)
    (checkout / "config/sites/ours.yaml").write_text("site: ours\npass_variables: [X]\n")
    with pytest.raises(ConfigError, match="names no partitions; add `accelerators`"):
        install_profile("ours", tmp_path / "profiles", "slurm", checkout)
    assert not (tmp_path / "profiles").exists()


def test_the_command_writes_where_snakemake_looks(tmp_path):
    """And says so where another profile of that name would be found first."""
    environment = {name: value for name, value in os.environ.items() if name != "XDG_CONFIG_HOME"}
    environment |= {"HOME": str(tmp_path), "PYTHONPATH": str(ROOT / "scripts")}
    command = [sys.executable, str(ROOT / "scripts/install_profile.py"), "example"]
    (tmp_path / "here/slurm").mkdir(parents=True)
    (tmp_path / "here/slurm/config.yaml").write_text("jobs: 1\n")
    done = subprocess.run(command, env=environment, cwd=tmp_path / "here", capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "here/slurm/config.yaml first by this name" in done.stderr
    assert (tmp_path / ".config/snakemake/slurm/config.yaml").exists()
