"""What opens something, or says who measured where, is planted wherever it may stand; what only looks like it stays."""

import json
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from servelab.archive.redaction import Redactor
from servelab.errors import ServelabError

ROOT = Path(__file__).parents[2]
# put together here, so that no file of the project holds anything of such a form
HUB = "hf_" + "AbCdEfGh" * 4
GIT = "ghp_" + "a1B2c3D4" * 5
OPENAI = "sk-" + "proj-Zz9" * 5
AWS = "AKIA" + "Q1W2E3R4T5Y6U7I8"
WEB = "eyJ" + "hbGciOiJIUzI1NiJ9" + ".eyJ" + "zdWIiOiIxMjM" + ".c2lnbmF0dXJl"
PASSWORD, ODD = "correct-horse-battery", 'p"<w>&/%ö staple'
KEY = "-----BEGIN RSA PRIVATE " + "KEY-----\nMIIEowIBAAKCAQEA\nq83vEjRWeJA=\n-----END RSA PRIVATE " + "KEY-----"
USER, HOST, DOMAIN = "aliceliddell", "gpu07", "cluster.wonder.example"
HOME, PROJECT = f"/home/{USER}", f"/home/{USER}/lab/serving"
PROXY_HOST = "proxy.wonder.example"
ENVIRONMENT = {
    "HF_TOKEN": HUB,
    "MY_API_KEY": PASSWORD,
    "DB_PASSWORD": ODD,
    "SERVICE_SECRET": "first line of a secret\nsecond line of a secret",
    "https_proxy": f"http://{USER}:{PASSWORD}@{PROXY_HOST}:3128",
    "NO_PROXY": "localhost,127.0.0.1,.wonder.example,10.0.0.0/8",
    "TOKENIZERS_PARALLELISM": "false",
    "KEYBOARD": "english",
    "CACHE_KEY": "12345678901",
    "SHORT_TOKEN": "token",
    "SSH_KEY": f"{HOME}/.ssh/id_ed25519",
    "HOME": HOME,
    "USER": USER,
}
PLANTED = [HUB, GIT, OPENAI, AWS, WEB, PASSWORD, ODD, USER, f"{HOST}.{DOMAIN}", DOMAIN, PROXY_HOST, HOME]


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


TEXTS = {
    "a token as it is": (f"token {HUB}.", "token redacted-secret."),
    "a token of the environment in JSON": (json.dumps({"a": ODD}), '{"a": "redacted-secret"}'),
    "a token of the environment in HTML": ("<b>p&quot;&lt;w&gt;&amp;/%ö staple</b>", "<b>redacted-secret</b>"),
    "a token of the environment in a URL": ("?p=p%22%3Cw%3E%26%2F%25%C3%B6%20staple", "?p=redacted-secret"),
    "a line of a secret": ("x second line of a secret y", "x redacted-secret y"),
    "an unknown token": (f"git said {GIT}!", "git said redacted-secret!"),
    "an access key": (f"key={AWS}", "key=redacted-secret"),
    "a web token": (f"got {WEB}", "got redacted-secret"),
    "a private key": (f"a\n{KEY}\nb", "a\nredacted-secret\nb"),
    "a header": ("Authorization: Bearer abcdefgh12345678", "Authorization: Bearer redacted-secret"),
    "a header in a dict": ("{'authorization': 'Basic dXNlcjpwYXNz'}", "{'authorization': 'Basic redacted-secret'}"),
    "bearer alone": ("sent Bearer abcdefgh12345678 to it", "sent Bearer redacted-secret to it"),
    "a URL with a password": ("https://bob:" + "s3cr3t@host.org/x", "https://redacted-secret@host.org/x"),
    "a remote": (f"git+https://oauth2:{GIT}@git.org/a.git", "git+https://redacted-secret@git.org/a.git"),
    "a signed URL": ("GET /a?X-Amz-Signature=0a1b2c3d4e&x=1", "GET /a?X-Amz-Signature=redacted-secret&x=1"),
    "an option": ("vllm serve m --api-key s3cret --port 1", "vllm serve m --api-key redacted-secret --port 1"),
    "an option with =": ("--hf-token=s3cret --port 1", "--hf-token=redacted-secret --port 1"),
    "arguments of vLLM": (
        "args: {'api_key': ['s3cret'], 'port': 1}",
        "args: {'api_key': ['redacted-secret'], 'port': 1}",
    ),
    "arguments of SGLang": ("ServerArgs(api_key='s3cret', port=1)", "ServerArgs(api_key='redacted-secret', port=1)"),
    "a variable": ("WANDB_API_KEY=abcd1234 python", "WANDB_API_KEY=redacted-secret python"),
    "a variable in JSON": ('"MY_SECRET": "abcd1234"', '"MY_SECRET": "redacted-secret"'),
    "a password in YAML": ("password: abcd1234\n", "password: redacted-secret\n"),
    "a proxy": (f"via http://{PROXY_HOST}:3128 now", "via http://redacted-proxy now"),
    "a proxy's variable": ("HTTPS_PROXY=http://p.org:3128 x", "HTTPS_PROXY=redacted-proxy x"),
    "a proxy's host": (f"{PROXY_HOST} refused", "redacted-host refused"),
    "a domain without proxy": ("db.wonder.example", "db.redacted-host"),
    "the project": (f"{PROJECT}/results/runs", "/redacted-project/results/runs"),
    "the project as URL": (f"file://{PROJECT}/report.html", "file:///redacted-project/report.html"),
    "home": (f"{HOME}/.cache/x", "/redacted-home/.cache/x"),
    "home alone": (f"HOME={HOME}", "HOME=/redacted-home"),
    "another's home": ("/home/hatter/x /Users/hare/y /root/z", "/redacted-home/x /redacted-home/y /root/z"),
    "a user": (f"owned by {USER}, {USER}'s group", "owned by redacted-user, redacted-user's group"),
    "a user in a path": (f"/scratch/{USER}/job_{USER}_1", "/scratch/redacted-user/job_redacted-user_1"),
    "a host in full": (f"node {HOST}.{DOMAIN}:80", "node redacted-host:80"),
    "a host": (f"[{HOST}] started", "[redacted-host] started"),
    "another host's first part": (f"{HOST}1", f"{HOST}1"),
    "another node of the runs": ("srun: nid004711", "srun: redacted-host"),
    "an address": ("tcp://10.1.2.3:5000, 10.1.2.34", "tcp://redacted-address:5000, 10.1.2.34"),
    "an address of six": ("[fe80::1:2ff:fe03:405]:1", "[redacted-address]:1"),
}
ORDINARY = [
    "bos_token='<|begin|>', eos_token_id=2, pad_token: '</s>', tokens=128, max_tokens: 4096",
    "EOS token = 2 '<|im_end|>', image_token=<image>, token 17, per-token latency, tokenizer=auto",
    "no API key is set and CORS allows all origins",
    "{'api_key': None, 'hf_token': None, 'ssl_keyfile': None, 'password': None}",
    "--max-num-seqs 8 --key-value-cache fp8 --kv-cache-dtype auto; cache key: 12",
    "sha256:0b1d3a5c7e9f0b1d3a5c7e9f0b1d3a5c7e9f0b1d3a5c7e9f0b1d3a5c7e9f0b1d",
    "listening on http://127.0.0.1:8000, host='0.0.0.0', server: localhost, host: localhost",
    "user, user=root, the user's host, hosted; {'role': 'user'}; useradd; as root",
    "version 12.8.4.1, driver 580.95.05, 3.11.7, 10.0.0, ::, 12:34:56",
    "git@github.com:owner/name.git, mail to a@b.example, https://huggingface.co/owner/name@main",
    "/usr/lib/python3/site-packages/x.py, ~/.cache, /rooted/x, /homepage/x, a/home/b, ./root/x",
    "Authorization, bearer of news, basic authorization was refused; secret, passwords, a secretary",
    "false english token 12345678901",
]


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
        ("root", "localhost", "root@localhost:~# /root-cause; the root of a tree; host=localhost user=root", None),
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


def test_twice_gives_the_same_bytes_and_then_nothing_more(files, tmp_path):
    for source in files:
        name = f"results/runs/r/{source.name}"
        one, two, three = (tmp_path / f"{number}-{source.name}" for number in range(3))
        redactor().member(name, source, one)
        redactor().member(name, source, two)
        assert one.read_bytes() == two.read_bytes()
        assert redactor().member(name, one, three) == one
        assert not three.exists()


def test_a_table_keeps_all_else(tmp_path):
    source = write_parquet(tmp_path / "a.parquet", ROWS)
    made = pq.ParquetFile(redactor().member("results/runs/r/requests.parquet", source, tmp_path / "b.parquet"))
    before, after = pq.ParquetFile(source), made.read()
    assert after.schema.types == before.schema_arrow.types
    assert after.schema.metadata == {b"from": b"/redacted-project", b"kept": b"x"}
    assert made.metadata.num_row_groups == before.metadata.num_row_groups
    assert made.metadata.row_group(0).column(0).compression == "ZSTD"
    rows = before.read().to_pylist()
    assert after.select(["round", "value"]).to_pylist() == [
        {key: row[key] for key in ("round", "value")} for row in rows
    ]
    changes = redactor()
    assert after["error"].to_pylist() == [row["error"] and changes.text(row["error"]) for row in rows]


def test_files_without_anything_stay_to_the_byte(tmp_path):
    plain = tmp_path / "plain.parquet"
    write_parquet(plain, [{"round": 0, "error": "refused", "words": ["x"], "value": 1.0}])
    table = pq.read_table(plain).replace_schema_metadata(None)
    pq.write_table(table, plain)
    (tmp_path / "plain.json").write_text('{"a":1,\n "b":   [2.50]}')
    (tmp_path / "plain.log").write_bytes(b"a\r\nb\xff\n\nc")
    (tmp_path / "plain.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0")
    for source in sorted(tmp_path.glob("plain.*")):
        before = source.read_bytes()
        assert redactor().member(f"results/x/{source.name}", source, tmp_path / "scratch") == source
        assert source.read_bytes() == before
        assert not (tmp_path / "scratch").exists()


@pytest.mark.parametrize(
    "name",
    [
        "results/runs/r/spec.json",
        "results/pairs/p/pair.json",
        "results/pairs/p/a/spec.json",
        "results/studies/s/stages/t/plan.json",
        "results/workloads/w/workload.json",
        "workflow/config/recorded/s/logs/a.json",
        "workflow/scripts/servelab/a.json",
    ],
)
@pytest.mark.parametrize("secret", [HUB, GIT, PASSWORD, f"{HOME}/m", f"{PROJECT}/m", f"http://{PROXY_HOST}:3128"])
def test_what_is_hashed_is_refused_and_not_changed(name, secret, tmp_path):
    source = tmp_path / "file.json"
    source.write_text(json.dumps({"outer": {"inner": [1, secret]}}))
    with pytest.raises(ServelabError, match=r"outer\.inner\.1: holds a credential") as raised:
        redactor().member(name, source, tmp_path / "scratch")
    assert str(raised.value).startswith(f"{source}: ")
    assert secret not in str(raised.value)


def test_a_variable_named_like_a_secret_is_refused_by_its_name(tmp_path):
    source = tmp_path / "spec.json"
    source.write_text('{"environment_variables": {"SOME_KEY": "abc"}, "arguments": {"--api-key": "xyz"}}')
    with pytest.raises(ServelabError, match=r"environment_variables\.SOME_KEY"):
        neutral().member("results/runs/r/spec.json", source, tmp_path / "scratch")


def test_a_public_name_in_a_specification_is_no_secret(tmp_path):
    source = tmp_path / "spec.json"
    source.write_text(json.dumps({"model": {"id": f"{USER}/model"}}))
    assert redactor().member("results/runs/r/spec.json", source, tmp_path / "scratch") == source


def test_of_prompts_only_what_is_of_here_counts(tmp_path):
    """Prompts are others' texts: what looks like a token in them is public, and part of what was measured."""
    source = write_parquet(
        tmp_path / "requests.parquet", [{"round": 0, "error": f"use {GIT} and /home/x", "words": [], "value": 0}]
    )
    table = pq.read_table(source).replace_schema_metadata(None)
    pq.write_table(table, source)
    assert redactor().member("results/workloads/w/requests.parquet", source, tmp_path / "scratch") == source
    with pytest.raises(ServelabError, match="column error"):
        redactor(environment={"X_TOKEN": GIT}).member(
            "results/workloads/w/requests.parquet", source, tmp_path / "scratch"
        )


def test_what_cannot_be_changed_is_refused(tmp_path):
    source = tmp_path / "chart.png"
    source.write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0tEXt" + HUB.encode())
    with pytest.raises(ServelabError, match=r"chart\.png: line 3: holds a credential"):
        redactor().member("results/studies/s/charts/chart.png", source, tmp_path / "scratch")


def test_two_machines_give_the_same():
    """The same run, by another user on another host in another folder."""

    def log(user, host, home, project, address):
        return f"{user}@{host}:{project}$ {project}/run {home}/.cache tcp://{address}:1 HF_TOKEN={HUB}\n{user} {host}\n"

    one = {
        "user": "aliceliddell",
        "host": "gpu07",
        "home": "/home/aliceliddell",
        "project": "/home/aliceliddell/p",
        "address": "10.1.2.3",
    }
    two = {
        "user": "white_rabbit",
        "host": "burrow-3",
        "home": "/u/white_rabbit",
        "project": "/scratch/p",
        "address": "172.16.9.9",
    }
    made = {
        redactor(
            project=Path(of["project"]),
            homes=[of["home"]],
            users=[of["user"]],
            hosts=[of["host"]],
            addresses=[of["address"]],
        ).text(log(**of))
        for of in (one, two)
    }
    assert len(made) == 1


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


def test_the_workflow_itself_holds_no_secret(tmp_path):
    """Every tracked file can be archived as it is."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a checkout")
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            assert neutral().member(f"workflow/{name}", ROOT / name, tmp_path / "scratch") == ROOT / name
