"""A wrong study ends in one line with file, key and the nearest valid name, before anything starts."""

import copy
from pathlib import Path

import pytest
import yaml
from made_study import demo_study

from servelab.core.errors import ConfigError
from servelab.search.project import load_project
from servelab.study.study import load_study

ROOT = Path(__file__).parents[2]
VALID = demo_study()


def change(path, value):
    """The valid study with one key changed; `None` as value of DELETE removes it."""
    study = copy.deepcopy(VALID)
    *parents, last = path
    place = study
    for part in parents:
        place = place[part]
    if value is DELETE:
        del place[last]
    else:
        place[last] = value
    return study


DELETE = object()

MISTAKES = {
    "a flag for an option": (
        change(["baseline", "options"], {"flash_attn": "on"}),
        ["baseline.options", "the option of that flag is `attention_backend`"],
    ),
    "a list for a value": (
        change(["baseline", "options"], {"threads": [1, 2]}),
        ["baseline.options.threads", "takes one value", "write a candidate for each"],
    ),
    "wrong key": (change(["objectiv"], {}), ["objectiv", "did you mean `objective`?"]),
    "wrong type": (
        change(["hardware", "per_node"], "many"),
        ['hardware.per_node: takes a whole number (found "many")'],
    ),
    "unknown option": (
        change(["stages", 0, "candidates", 0], {"options": {"max_num_seq": 8}}),
        ["candidates.0.options", "max_num_seq", "`max_num_seqs`"],
    ),
    "option of no engine of the study": (
        change(["stages", 0, "candidates", 0], {"options": {"expert_parallel": True}}),
        ["candidates.0.options", "llama.cpp 2026.10.11549 has no option `expert_parallel`"],
    ),
    "duplicate candidate": (
        change(["stages", 0, "candidates", 1], {"options": {"max_num_seqs": 8}, "label": "other"}),
        ["candidates.1", "the same as candidate 0"],
    ),
    "baseline without engine": (change(["baseline"], {"options": {}}), ["baseline.engine", "missing", "llama.cpp"]),
    "goodput without limits": (
        change(["objective", "metric"], "goodput_per_s"),
        ["objective.metric", "goodput_per_s needs limits", "`slos: {ttft_ms: 500, tpot_ms: 50}`"],
    ),
    "version not in the lock": (
        change(["engines", "llama.cpp", "version"], "1.2.3"),
        ["engines.llama.cpp.version", "1.2.3", "llama.cpp.lock.txt pins"],
    ),
    "branch instead of a commit": (
        change(["model"], {"id": "Qwen/Qwen3-32B", "revision": "main"}),
        ["model.revision", "main"],
    ),
    "reserved stage": (change(["stages", 0, "name"], "comparison"), ["stages.0", "reserved"]),
    "unknown condition": (change(["stages", 0, "when"], {"engin": "vllm"}), ["stages.0", "when", "`engine`"]),
    "replay of what has no times": (
        change(["protocol", "arrivals"], "replay"),
        ["protocol.arrivals", "no arrival times to replay", "`trace`"],
    ),
    "too many accelerators": (
        change(["stages", 0, "candidates", 0], {"accelerators": 2}),
        ["candidates.0.accelerators", "hardware.per_node"],
    ),
    "unknown engine in `when`": (change(["stages", 0, "when"], {"engine": "lama.cpp"}), ["when.engine", "`llama.cpp`"]),
    "fewer pairs at most": (change(["proof"], {"pairs": 5, "most_pairs": 3}), ["proof.most_pairs", "`proof.pairs`, 5"]),
    "negative limit": (
        change(["objective", "constraints"], {"tpot_ms": {"mean": -1}}),
        ["tpot_ms.mean: must be greater"],
    ),
    "a folder for a lock": (change(["engines", "llama.cpp", "lock"], "envs"), ["engines.llama.cpp.lock", "is no file"]),
    "another name than the file's": (change(["study"], "other"), ["study", "`cpu-smollm2`"]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_one_clear_line(mistake, tmp_path):
    content, expected = MISTAKES[mistake]
    file = tmp_path / "cpu-smollm2.yaml"
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    with pytest.raises(ConfigError) as caught:
        load_project(file, ROOT)
    message = str(caught.value)
    assert "\n" not in message
    for part in [str(file), *expected]:
        assert part in message


def test_broken_yaml_names_file_and_line(tmp_path):
    file = tmp_path / "broken.yaml"
    file.write_text("study: broken\ntitle: [\n")
    with pytest.raises(ConfigError, match=r"broken\.yaml:\d+: not valid YAML"):
        load_study(file)


def test_missing_file_names_the_nearest(tmp_path):
    (tmp_path / "cpu-smollm2.yaml").write_text("")
    with pytest.raises(ConfigError, match="did you mean `cpu-smollm2`"):
        load_study(tmp_path / "cpu-smolm2.yaml")
