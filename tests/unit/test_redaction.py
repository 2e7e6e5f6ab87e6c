"""What opens something, or says who measured where, is planted wherever it may stand; what only looks like it stays."""

import json
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from planted import (
    DOMAIN,
    ENVIRONMENT,
    HOME,
    HOST,
    HUB,
    KEY,
    ORDINARY,
    PASSWORD,
    PLANTED,
    PROJECT,
    PROXY_HOST,
    TEXTS,
    USER,
)

from servelab.archive.redaction import Redactor
from servelab.core.errors import ServelabError

ROOT = Path(__file__).parents[2]


def redactor(**changes):
    given = {
        "project": Path(PROJECT),
        "environment": ENVIRONMENT,
        "homes": [HOME],
        "users": [USER],
        "hosts": [f"{HOST}.{DOMAIN}", "nid004711"],
        "addresses": ["10.1.2.3", "fe80::1:2ff:fe03:405"],
    }
    return Redactor(**given | changes)


def neutral():
    """Where nothing is known that could be planted."""
    return redactor(
        project=Path("/srv") / "elsewhere", environment={}, homes=[], users=["root"], hosts=["localhost"], addresses=[]
    )


@pytest.mark.parametrize("place", TEXTS)
def test_text(place):
    given, wanted = TEXTS[place]
    made = redactor().text(given)
    assert made == wanted
    assert redactor().text(made) == made


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_stays(text):
    assert redactor().text(text) == text


PROMPT = "max@test: /scratch/max/x, user=max host: test"
MADE_PROMPT = "redacted-user@redacted-host: /scratch/redacted-user/x, user=redacted-user host: redacted-host"


@pytest.mark.parametrize(
    ("user", "host", "given", "wanted"),
    [
        ("max", "test", "max_num_seqs, --max-model-len, a test, max 12 ms", None),
        ("server", "worker", "server: started; /usr/server/x; worker 3, {'server': 1}", None),
        ("1000", "42", "1000 requests in 42 s; user=2000", None),
        ("max", "test", PROMPT, MADE_PROMPT),
        (
            "al",
            "n1",
            "/data/al/x al@n1 http://n1:80/ all n12",
            "/data/redacted-user/x redacted-user@redacted-host http://redacted-host:80/ all n12",
        ),
    ],
)
def test_a_name_that_is_a_word_goes_only_where_a_name_stands(user, host, given, wanted):
    made = redactor(environment={}, homes=[], users=[user], hosts=[host]).text(given)
    assert made == (given if wanted is None else wanted)


def test_json_changes_in_values_only():
    value = {
        "command": ["python", f"{PROJECT}/a.py", "--api-key", "pw", "--model", f"{HOME}/m"],
        "environment_variables": {"API_KEY": "pw", "OMP_NUM_THREADS": "8", "VLLM_TOKEN": "true"},
        "placement": {"batch": {"system": "slurm", "job_id": "17", "node": "n5"}},
        "user": "hare",
        USER: f"{USER}@{HOST}",
        "password": "short",
        "input_tokens": 12,
        "eos_token": "<|im_end|>",
        "value": 42.5,
        "nothing": None,
    }
    made = redactor().json(value)
    model = ["--model", "/redacted-home/m"]
    assert made == {
        "command": ["python", "/redacted-project/a.py", "--api-key", "redacted-secret", *model],
        "environment_variables": {"API_KEY": "redacted-secret", "OMP_NUM_THREADS": "8", "VLLM_TOKEN": "true"},
        "placement": {"batch": {"system": "slurm", "job_id": "17", "node": "redacted-host"}},
        "user": "redacted-user",
        "redacted-user": "redacted-user@redacted-host",
        "password": "redacted-secret",
        "input_tokens": 12,
        "eos_token": "<|im_end|>",
        "value": 42.5,
        "nothing": None,
    }
    assert redactor().json(made) == made


def planted_text():
    return "\n".join(given for given, _ in TEXTS.values()) + "\n" + "\n".join(PLANTED) + "\n"


def write_parquet(path, rows):
    schema = pa.schema(
        [("round", pa.int32()), ("error", pa.string()), ("words", pa.list_(pa.string())), ("value", pa.float64())],
        metadata={"from": PROJECT, "kept": "x"},
    )
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path, compression="zstd", row_group_size=4)
    return path


ROWS = [
    {"round": number, "error": text, "words": [text, "x"] if number % 2 else None, "value": number / 7}
    for number, text in enumerate([None, "connection refused", *PLANTED, f"cannot open {PROJECT}/results/a"])
]


@pytest.fixture
def files(tmp_path):
    """A file of each kind, with everything planted in it."""
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "server.log").write_text(planted_text())
    (folder / "half a key.log").write_text("a\n" + KEY.rpartition("\n")[0] + "\n")
    (folder / "not utf-8.log").write_bytes(b"\xff\xfe latin \xe9 " + HUB.encode() + b"\n")
    (folder / "report.html").write_text(f"<p title='{HOME}'>{HUB}</p>")
    (folder / "study.yaml").write_text(f"path: {HOME}/model\nnode: {HOST}.{DOMAIN}\n")
    (folder / "manifest.json").write_text(json.dumps({"planted": PLANTED, "text": planted_text(), "n": 1}))
    write_parquet(folder / "requests.parquet", ROWS)
    return sorted(folder.iterdir())


def contents(path):
    """What a reader can get out of a file, its bytes and what is packed in them."""
    found = path.read_bytes()
    if path.suffix == ".parquet":
        file = pq.ParquetFile(path)
        found += (
            json.dumps(file.read().to_pylist()).encode()
            + str(file.schema_arrow.metadata).encode()
            + str(file.metadata.to_dict()).encode()
        )
    return found


def test_files(files, tmp_path):
    planted_here = [*PLANTED, "MIIEowIBAAKCAQEA"]
    for source in files:
        before = contents(source)
        assert any(planted.encode() in before for planted in planted_here), source
        made = redactor().member(f"results/runs/r/{source.name}", source, tmp_path / f"made-{source.name}")
        assert made != source
        after = contents(made)
        for planted in planted_here:
            assert planted.encode() not in after, (source.name, planted)
            assert json.dumps(planted)[1:-1].encode() not in after, (source.name, planted)
        assert contents(source) == before


@pytest.mark.parametrize(
    "name",
    [
        "results/runs/r/spec.json",
        "workflow/config/recorded/s/logs/a.json",
        "workflow/scripts/servelab/a.json",
    ],
)
@pytest.mark.parametrize("secret", [HUB, PASSWORD, f"{HOME}/m", f"http://{PROXY_HOST}:3128"])
def test_what_is_hashed_is_refused_and_not_changed(name, secret, tmp_path):
    source = tmp_path / "file.json"
    source.write_text(json.dumps({"outer": {"inner": [1, secret]}}))
    with pytest.raises(ServelabError, match=r"outer\.inner\.1: has a credential") as raised:
        redactor().member(name, source, tmp_path / "scratch")
    assert str(raised.value).startswith(f"{source}: ")
    assert secret not in str(raised.value)


def test_what_cannot_be_changed_is_refused(tmp_path):
    source = tmp_path / "chart.png"
    source.write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0tEXt" + HUB.encode())
    with pytest.raises(ServelabError, match=r"chart\.png: line 3: has a credential"):
        redactor().member("results/studies/s/charts/chart.png", source, tmp_path / "scratch")


def test_this_machine_is_known(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", "/home/carpenter")
    monkeypatch.setenv("USER", "walruscarpenter")
    monkeypatch.setenv("HOSTNAME", "oysterbed9")
    monkeypatch.setenv("SOME_TOKEN", "cabbages-and-kings")
    monkeypatch.setenv("http_proxy", "http://10.9.8.7:3128")
    made = Redactor.of_this_machine(tmp_path, hosts=["shore17"]).text(
        f"/home/carpenter/x walruscarpenter oysterbed9 shore17 cabbages-and-kings 10.9.8.7:3128 {tmp_path}/results"
    )
    wanted = ["home/x redacted-user", "host", "host", "secret", "proxy /redacted-project/results"]
    assert made == "/redacted-" + " redacted-".join(wanted)


@pytest.mark.slow
def test_the_workflow_itself_holds_no_secret(tmp_path):
    """Every tracked file can be archived as it is."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a checkout")
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            assert neutral().member(f"workflow/{name}", ROOT / name, tmp_path / "scratch") == ROOT / name
