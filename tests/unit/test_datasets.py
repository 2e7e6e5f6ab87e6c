"""Datasets: configuration, sources in order, and records of whole and cut files."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest
from made_wheel import make_wheel

from servelab.assets.datasets import (
    CHUNK_BYTES,
    Dataset,
    fetch_dataset,
    iter_records,
    load_datasets,
    load_stored_dataset,
)
from servelab.assets.pinned_file import Content
from servelab.assets.sources.package import PackageFile
from servelab.core.errors import ConfigError, ServelabError

ROOT = Path(__file__).parents[2]
RECORDS = [{"id": str(index), "text": "ä☃𝄞 ]}," * (index % 7)} for index in range(50)]
RECORDS.append({"id": "long", "text": "x☃" * CHUNK_BYTES})
RECORDS.append({"id": "last", "text": "end"})


def write(path: Path, data: bytes) -> tuple[Path, Content]:
    path.write_bytes(data)
    return path, Content(size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())


def dataset(content: Content, *paths: Path, part_of: str | None = None) -> Dataset:
    sources = [{"kind": "path", "path": str(path)} for path in paths]
    return Dataset.model_validate(
        {**content.model_dump(), "title": "T", "file": "d.json", "part_of": part_of, "license": "x", "sources": sources}
    )


@pytest.mark.parametrize("indent", [None, 2])
def test_whole_file_gives_every_record(tmp_path: Path, indent: int | None) -> None:
    path, _ = write(tmp_path / "d.json", json.dumps(RECORDS, indent=indent, ensure_ascii=False).encode())
    assert list(iter_records(path, cut=False)) == RECORDS


@pytest.mark.parametrize("missing_bytes", [1, 2, 3, 20, 30, 40])
def test_cut_file_gives_its_complete_records(tmp_path: Path, missing_bytes: int) -> None:
    data = json.dumps(RECORDS, indent=2, ensure_ascii=False).encode()[:-missing_bytes]
    path, _ = write(tmp_path / "d.json", data)
    complete = len(RECORDS) if missing_bytes <= 2 else len(RECORDS) - 1
    assert list(iter_records(path, cut=True)) == RECORDS[:complete]
    with pytest.raises(ServelabError, match=f"broken after {complete} complete records"):
        list(iter_records(path, cut=False))


def test_sources_are_tried_in_order(tmp_path: Path) -> None:
    good, content = write(tmp_path / "good.json", json.dumps(RECORDS).encode())
    bad, _ = write(tmp_path / "bad.json", b"[]")
    path = fetch_dataset("d", dataset(content, tmp_path / "none", bad, good, part_of="whole"), tmp_path / "out")
    stored, file = load_stored_dataset(path)
    assert file.read_bytes() == good.read_bytes()
    assert (stored.records, stored.source, stored.part_of) == (len(RECORDS), str(good), "whole")


def test_no_source_names_each_reason_and_keeps_the_good_copy(tmp_path: Path) -> None:
    good, content = write(tmp_path / "good.json", b'[{"a": 1}]')
    fetch_dataset("d", dataset(content, good), tmp_path / "out")
    newer = Content(size_bytes=content.size_bytes, sha256="0" * 64)
    with pytest.raises(ServelabError, match=r"no source has it: .*none: No such file.*; .*sha256 is"):
        fetch_dataset("d", dataset(newer, tmp_path / "none", good), tmp_path / "out")
    assert load_stored_dataset(tmp_path / "out" / "dataset.json")[1].read_bytes() == good.read_bytes()
    good.unlink()
    fetch_dataset("d", dataset(content, good), tmp_path / "out")
    assert load_stored_dataset(tmp_path / "out" / "dataset.json")[0].source == "kept"


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "wheels"
    folder.mkdir()
    make_wheel(folder, "demo_data", "1.0", {"demo_data/d.json": b"[]" * 5000})
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


BODY = b"[]" * 5000
BODY_CONTENT = Content(size_bytes=len(BODY), sha256=hashlib.sha256(BODY).hexdigest())


def package(requirement: str = "demo-data==1.0", member: str = "demo_data/d.json") -> PackageFile:
    return PackageFile(requirement=requirement, member=member)


def test_package_member_is_taken_out_of_the_wheel(tmp_path: Path, wheels: Path) -> None:
    destination = tmp_path / "out" / "d.json"
    package().fetch(BODY_CONTENT, destination)
    assert destination.read_bytes() == BODY
    assert list(destination.parent.iterdir()) == [destination]


@pytest.mark.parametrize(
    ("find", "replace", "message"),
    [
        ("size_bytes: 672837942", "size_byte: 672837942", r"sharegpt-v3: size_byte: .*did you mean `size_bytes`"),
        ("part_of: sharegpt-v3", "part_of: sharegpt", r"sharegpt-v3-head.part_of: .*did you mean `sharegpt-v3`"),
        ("      id: anon", "      ids: anon", r"sharegpt-v3: sources.0.hub"),
        ("sharegpt-v3-head:", "Head_1:", "a name may have lower-case letters"),
        ("sha256: 99af", "sha256: 99AF", "sharegpt-v3-head: sha256"),
    ],
)
def test_wrong_configuration_is_one_clear_line(tmp_path: Path, find: str, replace: str, message: str) -> None:
    text = (ROOT / "config/datasets.yaml").read_text()
    assert find in text
    path = tmp_path / "datasets.yaml"
    path.write_text(text.replace(find, replace, 1))
    with pytest.raises(ConfigError) as raised:
        load_datasets(path)
    assert re.search(message, str(raised.value))
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)
