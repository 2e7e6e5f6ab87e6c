"""The keys of a workflow's configuration: a wrong one is an error that names the nearest."""

import pytest
import yaml
from made_study import demo_study

from servelab.core.errors import ConfigError
from servelab.study.study import load_study
from servelab.workflow.studies import read_configuration, read_studies


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"studies": ["a"], "studys": ["x"]}, ["studys", "did you mean `studies`?"]),
        ({"studies": ["a"], "Site": "x"}, ["Site", "`site`"]),
        ({}, ["`studies` is missing"]),
        ({"studies": None}, ["studies", "null"]),
        ({"studies": ["../a"]}, ["studies.0", "../a"]),
        ({"studies": ["a"], "site": 3}, ["site", "3"]),
        ({"studies": ["a"], "results": "x"}, ["results"]),
    ],
)
def test_a_wrong_key(config, expected):
    with pytest.raises(ConfigError) as raised:
        read_configuration(config)
    message = str(raised.value)
    assert message.startswith("config/config.yaml or --config: ") and "\n" not in message
    assert all(part in message for part in expected), message


def test_a_text_is_one_study():
    """Issue: `--config studies=cpu-smollm2` was read letter by letter."""
    assert read_configuration({"studies": "cpu-smollm2"}).studies == ["cpu-smollm2"]
    assert read_configuration({"studies": [], "recorded": "example"}).recorded == ["example"]


def test_what_is_asked_for_of_another_study_names_the_fix():
    """Issue: the command of a report, of a study that was given by --config, ended in a KeyError."""
    studies = read_studies(read_configuration({"studies": [], "recorded": ["example"]}))
    for ask in (studies.stages, lambda name: studies.live[name.split("/")[1]]):
        with pytest.raises(ConfigError, match=r"no study of this configuration.* --config 'studies="):
            ask("studies/cpu-smollm2")


NUMBERS = [
    ("protocol", "request_rate"),
    ("hardware", "price_per_accelerator_hour"),
    ("objective", "margin_percent"),
    ("objective", "slos", "ttft_ms"),
    ("objective", "constraints", "ttft_ms", "mean"),
    ("stages", 0, "candidates", 0, "arguments", "--x"),
]


@pytest.mark.parametrize("path", NUMBERS, ids=lambda path: ".".join(map(str, path)))
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_none(path, value, tmp_path):
    """Issue: `request_rate: .nan` ended in a traceback; some limits were taken with it."""
    study = place = demo_study()
    for key in path[:-1]:
        place = place[key] if isinstance(key, int) else place.setdefault(key, {})
    place[path[-1]] = value
    file = tmp_path / "demo.yaml"
    file.write_text(yaml.safe_dump(study))
    with pytest.raises(ConfigError, match=r"finite number|found -?(nan|inf)") as raised:
        load_study(file)
    assert str(raised.value).startswith(f"{file}: {path[0]}.") and "\n" not in str(raised.value)
