"""The load client on a zoo of servers: the true record of each answer, or the true reason why there is none."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from servers.behind_tls import behind_tls, make_certificate
from servers.made_load import OUTPUT_TOKENS, plan_for
from servers.quirks import HOSTILE, QUIRKS, SCRIPTS, TOKENS
from servers.stub_server import FIRST_TOKEN_S, GAP_S, TEMPLATE_TOKENS, StubServer
from tokenizers import Tokenizer, models, pre_tokenizers

from servelab.measure.load.sender import send_load
from servelab.metrics.definitions.load import tpot_ms
from servelab.metrics.tables.io import record_array

CLOCKS_S = 0.002
"""Between the server's clock and the kernel's stamps."""
SUCCESSES = [name for name, quirk in QUIRKS.items() if quirk.error is None]
PAGE = (Path(__file__).parents[2] / "docs/load.md").read_text()


def sent(tmp_path, url, prompts, **settings):
    """The records of prompts, with the clock's time of their zero."""
    assert OUTPUT_TOKENS == TOKENS
    plan = plan_for(tmp_path, url, prompts, **{"request_timeout_s": 2.0} | settings)
    records, stats, _ = send_load(plan)
    return records, stats.origin_monotonic_s


def check(name, table, row, times, origin):
    """A record is as its quirk says; its times are between those before and after the server sent its tokens."""
    quirk, record = QUIRKS[name], table.slice(row, 1).to_pylist()[0]
    assert (record["http_status"], record["error"] is None) == (quirk.http_status, quirk.error is None), record["error"]
    if quirk.error is not None:
        assert record["error"].startswith(quirk.error) and f"`{record['error'].split(':')[0]}`" in PAGE
        assert record["end_s"] >= record["sent_s"]
        return
    assert record["output_tokens"] == TOKENS
    assert record["input_tokens"] == len(name.split()) + TEMPLATE_TOKENS
    assert record["finish_reason"] in ("length", "stop")
    gaps, span_ms = record["chunk_gaps_ms"], 1000 * (record["last_token_s"] - record["first_token_s"])
    assert len(gaps) == record["chunks"] - 1 and sum(gaps) == pytest.approx(span_ms, rel=1e-5)
    ordered = [record[each] for each in ("scheduled_s", "sent_s", "first_token_s", "last_token_s", "end_s")]
    assert ordered == sorted(ordered) and record["scheduled_s"] <= record["started_s"] <= record["sent_s"]
    assert tpot_ms(record_array(table.slice(row, 1)))[0] == pytest.approx(span_ms / (quirk.streamed - 1))
    if times:
        assert record["chunks"] == len(times)
        for found, (before, after) in zip((ordered[2], ordered[3]), (times[0], times[-1]), strict=True):
            late_s = CLOCKS_S + record["unread_ms"] / 1000  # what is read together has the last one's time
            assert before - CLOCKS_S <= origin + found <= after + late_s


@pytest.mark.parametrize("name", QUIRKS)
def test_quirk(name, tmp_path):
    """With each a sound request beside it, which it does not harm."""
    server = StubServer(quirks=SCRIPTS)
    with server.running() as url:
        table, origin = sent(tmp_path, url, [name, "sound"])
    check(name, table, 0, server.sent[name], origin)
    (other,) = table.slice(1).to_pylist()
    assert (other["error"], other["chunks"], other["output_tokens"]) == (None, TOKENS, TOKENS)
    assert other["first_token_s"] - other["sent_s"] >= FIRST_TOKEN_S
    assert other["last_token_s"] - other["first_token_s"] >= (TOKENS - 1) * GAP_S


def test_whole_answers_without_done_are_counted(tmp_path):
    with StubServer(quirks=SCRIPTS).running() as url:
        assert send_load(plan_for(tmp_path, url, ["no done", "sound", "an early close"])).stats.without_done == 1


def test_tokens_of_a_text_need_not_be_those_that_were_asked_for(tmp_path):
    letters = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    letters.pre_tokenizer = pre_tokenizers.Split(" ", "isolated")
    letters.save(str(tmp_path / "tokenizer.json"))
    with StubServer(quirks=SCRIPTS).running() as url:
        table, _ = sent(tmp_path, url, ["no usage"], tokenizer=tmp_path / "tokenizer.json")
    assert table["error"].to_pylist() == [None] and table["output_tokens"].to_pylist() == [2 * TOKENS]


@pytest.mark.parametrize("group", range(8))
def test_hostile(group, tmp_path):
    """Some at the same time, and a sound request beside them."""
    names = list(HOSTILE)[group::8]
    with StubServer(quirks=SCRIPTS).running() as url:
        table, _ = sent(tmp_path, url, [*names, "sound"], timeout_s=60.0)
    *harmed, sound = table["error"].to_pylist()
    for name, error in zip(names, harmed, strict=True):
        assert error is not None and f"`{error.split(':')[0]}`" in PAGE, name
        assert error.isprintable() and len(error) < 500, name
    assert sound is None


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_successes_over_tls(version, tmp_path, monkeypatch):
    certificate = make_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    behind_tls(monkeypatch, certificate, minimum_version=version, maximum_version=version)
    server = StubServer(quirks=SCRIPTS)
    with server.running() as url:
        table, origin = sent(
            tmp_path, url.replace("http", "https"), SUCCESSES, max_concurrency=1, request_timeout_s=20.0
        )
    for row, name in enumerate(SUCCESSES):
        check(name, table, row, server.sent[name], origin)
