"""Made secrets of every kind do not get into an archive; what only looks like one does not end a build."""

import json
import time
from collections import Counter
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made_secrets import ALNUM, HEX, KINDS, base64_of, carriers, some

from servelab.archive.redaction import Redactor, refuse_secrets
from servelab.core.credentials import without_credentials
from servelab.core.errors import ServelabError

ROOT = Path(__file__).parents[2]
NOWHERE = Redactor(project=Path("/srv/nowhere"), environment={})


@pytest.mark.parametrize("seed", [1, 2])
def test_no_secret_gets_into_an_archive(seed, tmp_path):
    """In text, JSON and Parquet; a second pass changes nothing more, and the rules of others find nothing."""
    missed = Counter()
    random = Random(seed)
    for number, (kind, make) in enumerate(KINDS.items()):
        secret, text = make(random)
        files = {name: content.encode() for name, content in carriers(text).items()}
        table = pa.table({"error": [None, text], "n": [1, 2]}).replace_schema_metadata({"from": text})
        pq.write_table(table, tmp_path / f"{number}.parquet")
        for name, content in files.items():
            (tmp_path / f"{number}-{name}").write_bytes(content)
        for source in sorted(tmp_path.glob(f"{number}[-.]*")):
            name = f"results/runs/r/{source.name}"
            made = NOWHERE.member(name, source, tmp_path / "made")
            content = made.read_bytes().decode(errors="replace")
            if source.suffix == ".parquet":
                found = pq.read_table(made)
                content = json.dumps(found.to_pylist()) + str(found.schema.metadata)
            missed[kind, source.name] += secret in content or json.dumps(secret)[1:-1] in content
            refuse_secrets(name, made)
            again = tmp_path / f"again{source.suffix}"
            assert NOWHERE.member(name, made.rename(tmp_path / f"once{source.suffix}"), again).exists()
            assert not again.exists(), (kind, source.name)
    assert not +missed


def test_a_secret_of_the_environment_is_found_broken_and_in_base64(tmp_path):
    value = "correct-horse-battery-staple"
    own = Redactor(project=Path("/srv/nowhere"), environment={"SOME_TOKEN": value})
    for text in (
        f"{value[:9]}\n{value[9:]}",
        f"{value[:9]}\\\n   {value[9:]}",
        base64_of(value),
        base64_of(f"u:{value}"),
    ):
        made = own.text(f"a {text} b")
        assert "redacted-secret" in made and value[9:] not in made and base64_of(value)[4:-4] not in made, text


def sound_texts():
    """What runs print and files have that looks random."""
    random = Random(9)
    yield from (f"sha256:{some(random, HEX, 64)}  model-0000{n}.safetensors" for n in range(200))
    yield from (
        f"results/runs/{some(random, HEX, 20)}/requests.parquet run {some(random, HEX, 20)}" for _ in range(200)
    )
    yield from (f"    --hash=sha256:{some(random, HEX, 64)} \\" for _ in range(200))
    yield from (f"data:image/png;base64,{some(random, ALNUM + '+/', 4000)}==" for _ in range(50))
    yield from (f'"{some(random, ALNUM + "-_", 22)}": {random.random()}' for _ in range(200))
    yield from (f"chatcmpl-{some(random, HEX, 32)} {some(random, HEX, 8)}-{some(random, HEX, 4)}" for _ in range(200))
    yield "max token length: 162, EOG token = 2 '<|im_end|>', per-token: 12.345ms/token, token: 1.25ms"
    yield "---------------Inter-token Latency----------------"


def test_what_only_looks_random_stays(tmp_path):
    source = tmp_path / "server.log"
    source.write_text("\n".join(sound_texts()) + "\n")
    assert NOWHERE.member("results/runs/r/server.log", source, tmp_path / "made") == source
    assert NOWHERE.member("workflow/config/recorded/s/logs/a.log", source, tmp_path / "made") == source
    refuse_secrets("results/runs/r/server.log", source)


def test_the_rules_of_others_refuse_what_ours_let_through(tmp_path):
    """As if a redaction had a gap: the build ends with place and rule, and does not print the secret."""
    token = "glp" + "at-" + "Ab1" * 7
    source = tmp_path / "a.log"
    source.write_text(f"one\ntwo {token}\n")
    with pytest.raises(ServelabError, match=r"results/runs/r/a\.log: line 2: .*GitLab Token") as raised:
        refuse_secrets("results/runs/r/a.log", source)
    assert token not in str(raised.value)
    pq.write_table(pa.table({"error": [f"x {token}"]}), tmp_path / "a.parquet")
    with pytest.raises(ServelabError, match=r"column error: .*GitLab Token"):
        refuse_secrets("results/runs/r/a.parquet", tmp_path / "a.parquet")
    refuse_secrets("results/workloads/w/requests.parquet", tmp_path / "a.parquet")


@pytest.mark.parametrize("name", ["workflow.lock.txt", "vllm.lock.txt"])
def test_a_lock_has_no_secret(name):
    text = (ROOT / "envs" / name).read_text()
    assert without_credentials(text) == text


def test_documents_and_logs_have_no_secret():
    for path in sorted([*(ROOT / "docs").rglob("*.md"), *(ROOT / "config/recorded").rglob("*.txt")]):
        text = path.read_text(errors="replace")
        assert without_credentials(text) == text, path


@pytest.mark.parametrize("text", ["ab.cd.", "key-", "\\_", "\\\n", "a\\n", "_\n", "\\_\n"], ids=repr)
def test_a_long_text_of_short_pieces_is_read_in_linear_time(text):
    """Twenty times the text takes about twenty times as long, where a quadratic pattern takes 400 times."""

    def seconds(words):
        start = time.process_time()
        without_credentials(text * words)
        return time.process_time() - start

    seconds(100)
    assert seconds(20_000) < 100 * max(min(seconds(1_000) for _ in range(3)), 0.001)
