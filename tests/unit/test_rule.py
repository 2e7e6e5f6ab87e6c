"""The command line between a rule and its script, and the digest of all code."""

import os
import shlex
from pathlib import Path

from snakemake.iocontainers import InputFiles, OutputFiles, Wildcards

from servelab.core.cli import RuleJob
from servelab.workflow.call import call, rule_files
from servelab.workflow.code_digest import digest_code


def test_a_script_gets_what_its_rule_has_by_name():
    read = InputFiles(fromdict={"plan": "a b/plan.json", "tables": ["1.parquet", "2.parquet"], "none": [], "code": "x"})
    made = OutputFiles(fromdict={"decision": "decision.json"})
    files = rule_files(Wildcards(fromdict={"stage": "engine"}), read, made)
    command = call("decide_stage", "files", "sign").replace("{params.files:q}", shlex.quote(files))
    words = shlex.split(command.replace("{params.sign:q}", shlex.quote('{"a": "b=c"}')))
    rule = RuleJob(words[2:4])
    assert rule.input == {"plan": Path("a b/plan.json"), "tables": [Path("1.parquet"), Path("2.parquet")], "none": []}
    assert (rule.output.decision, rule.wildcards.stage) == (Path("decision.json"), "engine")
    assert rule.params == {"sign": '{"a": "b=c"}'}


def test_the_digest_of_the_code_is_as_old_as_its_newest_file_and_new_when_one_changes(tmp_path):
    scripts, digest, results = tmp_path / "scripts", tmp_path / "code.sha256", tmp_path / "results"
    (scripts / "pack/templates").mkdir(parents=True)
    for age, name in enumerate(("make.py", "pack/one.py", "pack/templates/page.j2")):
        (scripts / name).write_text("")
        os.utime(scripts / name, ns=(0, 10**18 + age))
    digest_code(scripts, digest, results)
    assert digest.stat().st_mtime_ns == 10**18 + 2
    (scripts / "pack/__pycache__").mkdir()
    (scripts / "pack/__pycache__/one.pyc").write_text("compiled")
    (scripts / "make.py").touch()
    digest_code(scripts, digest, results)
    assert digest.stat().st_mtime_ns == 10**18 + 2  # the content is the same
    (scripts / "pack/templates/page.j2").write_text("changed")
    digest_code(scripts, digest, results)
    assert digest.stat().st_mtime_ns > 10**18 + 2
    ahead = results / "studies/s/decision.json"  # of a machine whose clock is ahead
    ahead.parent.mkdir(parents=True)
    ahead.touch()
    os.utime(ahead, ns=(0, 4 * 10**18))
    (scripts / "make.py").write_text("changed")
    digest_code(scripts, digest, results)
    assert digest.stat().st_mtime_ns > ahead.stat().st_mtime_ns
