"""The schema made from the types says the same as the types; `make check` compares the generated documents."""

import json
from pathlib import Path

import jsonschema
import pytest

from servelab.core.yaml_file import read_yaml

ROOT = Path(__file__).parents[2]

CONFIGURATION = [
    file
    for part in ("studies/*.yaml", "sites/*.yaml", "recorded/*/study.yaml")
    for file in sorted((ROOT / "config").glob(part))
]


@pytest.mark.parametrize("file", CONFIGURATION, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_an_editor_is_told_the_schema_in_the_first_line(file):
    first = file.read_text().splitlines()[0]
    assert first.startswith("# yaml-language-server: $schema=")
    schema = json.loads((file.parent / first.partition("=")[2]).read_text())
    jsonschema.validate(read_yaml(file), schema)


def test_schema_refuses_an_unknown_key():
    schema = json.loads((ROOT / "config/schema/study.schema.json").read_text())
    content = read_yaml(ROOT / "config/studies/cpu-smollm2.yaml") | {"objectiv": {}}
    with pytest.raises(jsonschema.ValidationError, match="objectiv"):
        jsonschema.validate(content, schema)
