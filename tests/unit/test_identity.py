"""Identity: everything that can change a measurement changes the run's name, and nothing else does."""

import copy
from pathlib import Path

import pytest
import yaml
from made_study import demo_study

from servelab.core.identity import lock_sha256, run_id
from servelab.core.run_spec import RunSpec, ServedSpec
from servelab.engines.start_rules import with_folders
from servelab.search.planning import plan_stage
from servelab.search.project import load_project
from servelab.search.strategies import stage_names
from servelab.study.configuration import Load, apply, baseline
from servelab.study.spec_builder import named_spec, run_spec
from servelab.study.study import Overrides

ROOT = Path(__file__).parents[2]
STUDY = demo_study()


def run_ids(tmp_path, study, name="cpu-smollm2", text=None):
    file = tmp_path / f"{name}.yaml"
    file.write_text(text or yaml.safe_dump(study, sort_keys=False))
    project = load_project(file, ROOT)
    return plan_stage(project, stage_names(project.study)[0], baseline(project.study)).run_ids()


@pytest.fixture
def before(tmp_path):
    return run_ids(tmp_path, STUDY)


def test_labels_titles_comments_and_order_change_nothing(tmp_path, before):
    study = copy.deepcopy(STUDY)
    study["title"] = "Another title"
    study["stages"][0]["title"] = "Another heading"
    study["stages"][0]["candidates"][0]["label"] = "eight"
    assert run_ids(tmp_path, study) == before
    assert run_ids(tmp_path, dict(reversed(study.items()))) == before
    assert run_ids(tmp_path, study, text="# a comment\n" + yaml.safe_dump(study)) == before
    assert run_ids(tmp_path, study | {"study": "another"}, name="another") == before
    study["objective"]["margin_percent"] = 10
    assert run_ids(tmp_path, study) == before


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"options": {"max_num_seqs": 8, "enable_prefix_caching": True}},
        {"arguments": {"--zeta": 1e16, "--alpha": 0.1, "--bare": None, '--naïve "quoted"': "a, {b}: ü\\n"}},
        {"model": "q8_0", "accelerators": 2, "options": {"threads": 1}},
    ],
    ids=["none", "options", "arguments", "another model and count"],
)
def test_runs_that_share_their_specification_are_named_as_each_alone_would_be(settings):
    project = load_project(ROOT / "config/studies/cpu-smollm2.yaml", ROOT)
    load = Load(workload=project.study.objective.on)
    start = baseline(project.study).configuration
    for configuration in (start, apply(start, Overrides(**settings)), start):
        served = ServedSpec(command=(configuration.engine, "ü"), files={"b": "1", "a": "2"}, request_body={"z": [1.5]})
        name, spec = named_spec(project, configuration, load, served, "proof-1")
        given = {"served": served, "start": "proof-1"}
        assert spec == run_spec(project, configuration, load).model_copy(update=given)
        assert name == run_id(spec) == run_id(RunSpec.model_validate_json(spec.model_dump_json()))


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("--speculative-config", '{"model": "o/draft", "method": "eagle3"}'),
        ("speculative-draft-model-path", "o/draft"),
        ("lora_modules", "name=o/draft"),
        ("lora-modules", '{"name": "o", "path": "o/draft", "base_model_name": "o/model"}'),
    ],
)
def test_a_second_model_is_served_from_its_folder(argument, value):
    served = with_folders({argument: value, "name": "o/draft"}, {"o/draft": Path("/at/this"), "o/model": Path("/no")})
    assert served == {argument: value.replace("o/draft", "/at/this"), "name": "o/draft"}


def test_a_draft_is_part_of_the_runs_that_name_it(tmp_path, before):
    study = STUDY | {"model": STUDY["model"] | {"second_models": {"o/draft": "1" * 40}}}
    assert run_ids(tmp_path, study) == before
    study["stages"] = [
        STUDY["stages"][0] | {"candidates": [{"arguments": {"speculative-draft-model-path": "o/draft"}}]}
    ]
    *same, drafted = run_ids(tmp_path, study)
    study["model"]["second_models"]["o/draft"] = "2" * 40
    assert (again := run_ids(tmp_path, study))[:-1] == same and again[-1] != drafted


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["protocol", "warmup_requests"], 3),
        (["protocol", "rounds"], 9),
        (["protocol", "request_rate"], 5),
        (["protocol", "max_concurrency"], 7),
        (["hardware", "accelerator"], "another cpu"),
        (["baseline", "environment_variables"], {"OMP_NUM_THREADS": "1"}),
        (["baseline", "arguments"], {"--threads": 1}),
        (["objective", "on"], "cpu-short"),
    ],
    ids=lambda value: ".".join(value) if isinstance(value, list) else None,
)
def test_what_can_change_every_measurement_changes_every_run(tmp_path, before, path, value):
    study = copy.deepcopy(STUDY)
    place = study
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    assert not set(run_ids(tmp_path, study)) & set(before)


LOCK = """\
alpha==1.0 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
    # via beta
beta==2.0 --hash=sha256:cc
"""


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("# made elsewhere\n" + LOCK.replace("via beta", "via gamma"), True),
        ("beta==2.0 \\\n  --hash=sha256:cc\nalpha==1.0 --hash=sha256:bb --hash=sha256:aa\n", True),
        (LOCK.replace("alpha==1.0", "alpha==1.1"), False),
        (
            LOCK.replace("sha256:bb", "sha256:cc").replace("beta==2.0 --hash=sha256:cc", "beta==2.0 --hash=sha256:bb"),
            False,
        ),
    ],
    ids=["comments", "order and layout", "version", "hashes exchanged"],
)
def test_a_lock_is_its_packages(tmp_path, text, same):
    first, second = tmp_path / "a.lock.txt", tmp_path / "b.lock.txt"
    first.write_text(LOCK)
    second.write_text(text)
    assert (lock_sha256(first) == lock_sha256(second)) == same
