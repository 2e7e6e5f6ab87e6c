"""What real engines say of their flags: asked once, and those of a serving command are among them."""

from pathlib import Path

from engines.conftest import Installed

from servelab.engines.server_to_start import Serve
from servelab.search.preflight.options import kept_flags, known_flags


def test_engine_prints_its_flags_without_an_accelerator(installed: Installed, tmp_path: Path) -> None:
    engine, environment = installed.engine, installed.environment
    flags = known_flags(engine, environment, tmp_path / "environment.json")
    assert kept_flags(engine, environment, tmp_path / "environment.json") == flags
    options = {"max_num_seqs": 4, "context_length": 512, "max_num_batched_tokens": 512, "prefix_caching": False}
    command = engine.command(Serve(Path("python"), Path("model"), "name", 1, options, {}))
    given = [part for part in command[3 if "-m" in command[:2] else 1 :] if part.startswith("--")]
    assert given
    assert [flag for flag in given if not engine.knows(flag, flags)] == []
    assert not engine.knows("--no-such-flag", flags)
