"""`servelab bench`: a stub server measured by its address, and what is found of it."""

import bench_server
import pyarrow.parquet as pq
import pytest
from servelab_command import run_servelab
from servers.stub_server import MODEL, TEMPLATE_TOKENS, StubServer

from servelab.bench.bench_result import Bench
from servelab.core.errors import ServelabError
from servelab.measure.load.sender import send_load

SMALL = ("--requests", "4", "--input-tokens", "40", "--output-tokens", "8", "--warmup", "1")
KEY = "-".join(("sk", "never", "to", "be", "seen", "9421"))  # in one piece no archive would take this file


def bench(url, output, *words, **variables):
    return run_servelab("bench", url, "--output", output, *words, **variables)


@pytest.fixture
def in_process(monkeypatch):
    """The load is sent by this process: one of its own takes a second each time."""
    monkeypatch.setattr("servelab.bench.load._run", lambda plan, *_: send_load(plan))


def read(folder):
    return Bench.read(folder / "bench.json")


@pytest.fixture(scope="module")
def benched(tmp_path_factory):
    """A bench of a stub at two loads, with the stub and what was printed."""
    folder, stub = tmp_path_factory.mktemp("bench") / "first", StubServer(longest=4096, version="1.2.3")
    with stub.running() as url:
        done = bench(f"{url}/v1", folder, "--concurrency", "1", "2", "--visits", "2", *SMALL)
    assert done.returncode == 0, done.stderr
    return folder, stub, done.stdout


def test_it_writes_a_page_and_prints_four_lines(benched):
    folder, _, printed = benched
    *words, report = printed.splitlines()
    assert len(words) == 4 and report == f"Report: {folder / 'bench.html'}"
    assert words[0].startswith(f"{MODEL} gives at most ") and words[3].startswith("Not known: ")
    assert "16 of 16 requests succeeded" in words[2]
    page = (folder / "bench.md").read_text()
    for text in ("1 at once", "2 at once", "restarts", "what its caches held", "95 % interval over visits"):
        assert text in page and text in (folder / "bench.html").read_text()
    assert "its version" not in page


def test_figures_are_those_of_the_records_and_intervals_are_over_visits(benched):
    found = read(benched[0])
    assert (found.asked.model, found.asked.longest_tokens, found.asked.version) == (MODEL, 4096, "1.2.3")
    assert found.load.is_length_forced
    assert found.load.mean_input_tokens == 40 and found.load.mean_output_tokens == 8
    records = pq.read_table(benched[0] / "requests.parquet").to_pylist()
    for point in found.points:
        assert (point.requests, point.failed, point.cached_percent) == (8, 0, 0)
        rows = [row for row in records if row["load"] == point.name]
        for visit, value in enumerate(point.visits["output_tokens_per_s"]):
            of_visit = [row for row in rows if row["round"] == visit]
            assert len(of_visit) == 4
            took_s = max(row["end_s"] for row in of_visit) - min(row["sent_s"] for row in of_visit)
            assert value == pytest.approx(4 * 8 / took_s)
        interval = point.interval("ttft_ms")
        assert interval.low < interval.value < interval.high
        assert {each.check: each.level for each in point.findings}["output_length"] == "ok"


def test_no_prompt_is_sent_twice(benched):
    prompts = [body["messages"][0]["content"] for body in benched[1].bodies]
    assert len(prompts) == 2 + 2 * 2 * (4 + 1)
    assert len({prompt[:40] for prompt in prompts}) == len(prompts)
    assert {len(prompt.split()) + TEMPLATE_TOKENS for prompt in prompts[2:]} == {40}


def test_a_key_goes_to_the_server_and_nowhere_else(tmp_path, monkeypatch):
    stub = StubServer(key=KEY)
    with stub.running() as url:
        words = ("--concurrency", "2", "--visits", "1", *SMALL, "--warmup", "0")
        done = bench(url, tmp_path / "out", *words, "--api-key-env", "MY_KEY", MY_KEY=KEY)
        monkeypatch.setenv("MY_KEY", "another")
        wrong = refused(url, tmp_path / "wrong", *words, "--api-key-env", "MY_KEY")
        without = refused(url, tmp_path / "without", *words)
    assert done.returncode == 0, done.stderr
    posts = [head for head in stub.heads if head.startswith("POST") and KEY in head]
    assert posts and all(head.count(f"Host: {url.removeprefix('http://')}\r\n") == 1 for head in posts)
    written = [done.stdout, done.stderr, *(file.read_bytes().decode("latin-1") for file in tmp_path.rglob("*.*"))]
    assert not any(KEY in text for text in written)
    assert "status 401" in wrong[1] and "another" not in wrong[1]
    assert "--api-key-env?" in without[1]


@pytest.mark.parametrize("refuses", [("ignore_eos",), ()])
def test_answers_that_end_by_themselves(refuses, in_process, tmp_path):
    """With a server that refuses to force the length, and with one that takes the field and forces nothing."""
    stub = StubServer(ends_early=True, refuses=refuses, done=False)
    with stub.running() as url:
        done = bench(
            url, tmp_path, "--concurrency", "2", "--visits", "1", *SMALL, "--warmup", "0", "--endpoint", "completions"
        )
    assert done.returncode == 0, done.stderr
    found = read(tmp_path)
    assert found.load.is_length_forced is not bool(refuses)
    assert found.load.mean_output_tokens == (4 if refuses else 8)
    assert any(each.saw.endswith(", 4 without [DONE]") for each in found.points[0].findings)
    assert found.points[0].failed == 0
    assert {each.check: each.level for each in found.points[0].findings}["output_length"] in ("ok", "not applicable")


def refused(url, output, *words):
    """The error of a bench that writes nothing."""
    with pytest.raises(ServelabError) as error:
        bench_server.main(bench_server.options().parse_args([url, "--output", str(output), *words]))
    assert not output.exists()
    return error.value.exit_code, str(error.value)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--model", "stub/modle"), 2, "did you mean `stub/model`"),
        (("--input-tokens", "5000"), 2, "stub/model takes 4,096"),
        (("--concurrency", "2", "2"), 2, "given twice"),
        (("--api-key-env", "NO_SUCH_VARIABLE_HERE"), 2, "the environment variable NO_SUCH_VARIABLE_HERE"),
        (("--api-key-env", "Zq7Lw2Xv9Kd4"), 2, "the environment variable (its name, never the key) is to hold"),
    ],
)
def test_a_mistake_is_one_line(words, code, said, tmp_path):
    with StubServer(longest=4096).running() as url:
        found, text = refused(url, tmp_path / "out", *words)
    assert found == code and said in text and "\n" not in text
