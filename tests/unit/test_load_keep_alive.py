"""The load client with connections that it uses again: the records of single ones, whatever the server does."""

import pytest
from behind_tls import behind_tls, make_certificate
from made_load import OUTPUT_TOKENS, load, plan_for
from stub_server import FIRST_TOKEN_S, GAP_S, StubServer

from servelab.measure.load.sender import send_load


@pytest.fixture(params=["plain", "tls"])
def address(request, tmp_path, monkeypatch):
    """Whether the stub speaks TLS; changes its URL to the right scheme."""
    if request.param == "plain":
        return str
    certificate = make_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    behind_tls(monkeypatch, certificate)
    return lambda url: url.replace("http://", "https://")


def test_connections_are_used_again(address, tmp_path):
    stub = StubServer(most_requests=10**6)
    with stub.running() as url:
        records = load(tmp_path, address(url), ["normal"] * 60, max_concurrency=6, keep_alive=True)
    assert [record["error"] for record in records] == [None] * 60
    assert len(stub.bodies) == 60 and stub.connections == 6
    for record in records:
        assert record["chunks"] == record["output_tokens"] == OUTPUT_TOKENS
        assert record["first_token_s"] - record["sent_s"] >= FIRST_TOKEN_S
        assert record["last_token_s"] - record["first_token_s"] >= (OUTPUT_TOKENS - 1) * GAP_S


@pytest.mark.parametrize("most_requests", [1, 2, 3])
def test_a_server_that_ends_kept_connections_fails_no_request(most_requests, address, tmp_path):
    stub = StubServer(most_requests=most_requests)
    with stub.running() as url:
        plan = plan_for(tmp_path, address(url), ["normal"] * 12, max_concurrency=2, keep_alive=True)
        records, stats, _ = send_load(plan)
    assert records["error"].to_pylist() == [None] * 12
    assert len(stub.bodies) == 12
    assert stats.requests_resent + 2 >= 12 / most_requests - 1
    assert stub.connections >= 12 / most_requests
