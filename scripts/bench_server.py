"""Measures a server that already runs, by its address: throughput and latency at several loads, on one page.

The model and its limits are asked from the server. Every load is sent once in each visit, with new prompts. It writes
bench.html, bench.md, bench.json and requests.parquet, and prints the answer in a few lines.
"""

import argparse
import os
import secrets
import socket
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from servelab.bench.bench_result import Bench, BenchLoad, means, point_result
from servelab.bench.load import CLIENT, Accepted, Point, Target, find_accepted, send_point
from servelab.bench.page import bench_page, plain_words
from servelab.core.errors import ConfigError
from servelab.core.processes import log_line
from servelab.engines.endpoint import Address, ask, check_key, checked_url
from servelab.measure.clients import CLIENTS
from servelab.measure.load import LoadResult
from servelab.report.page import write_page

_FEWEST_REQUESTS = 16
_PER_SLOT = 4
"""Requests of a visit for each that is in flight, so that the load is steady for most of it."""
_RATE_S = 20
"""Seconds that a load at a rate is sent for."""


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="address of the server: http://host:port, or with the path of its API (/team/v1)")
    parser.add_argument("--model", help="name of the model; default: the first that the server lists")
    loads = parser.add_mutually_exclusive_group()
    loads.add_argument("--concurrency", type=_count, nargs="+", default=[1, 4, 16], help="in flight (default: 1 4 16)")
    loads.add_argument("--rate", type=_positive, nargs="+", help="requests per second, with Poisson arrivals, instead")
    parser.add_argument("--requests", type=_count, help="in a visit; default: 4 for each in flight, or 20 s of a rate")
    parser.add_argument("--visits", type=_count, default=3, help="how often each load is sent (default: 3)")
    parser.add_argument("--input-tokens", type=_count, default=256, help="length of the prompts (default: 256)")
    parser.add_argument("--output-tokens", type=_count, default=64, help="length of the answers (default: 64)")
    parser.add_argument("--endpoint", choices=("chat", "completions"), default="chat", help="default: chat")
    parser.add_argument("--warmup", type=int, default=2, help="requests before each load, not counted (default: 2)")
    parser.add_argument("--timeout", type=_positive, default=900.0, help="seconds for a load to finish (default: 900)")
    parser.add_argument("--api-key-env", metavar="NAME", help="environment variable with the key; it is never written")
    parser.add_argument(
        "--header-env",
        nargs=2,
        action="append",
        default=[],
        metavar=("HEADER", "NAME"),
        help="a further header, and the environment variable with its value; may be given several times",
    )
    parser.add_argument("--ca", type=Path, metavar="FILE", help="certificates to trust, in PEM form")
    parser.add_argument("--insecure", action="store_true", help="do not check the certificate; the report says so")
    parser.add_argument(
        "--tokenizer", type=Path, metavar="FILE", help="the model's tokenizer.json, for a server that counts no tokens"
    )
    parser.add_argument("--key-over-http", action="store_true", help="send the key in clear text to another machine")
    parser.add_argument("--output", type=Path, help="folder; default: results/bench/<time>")
    return parser


def main(arguments: argparse.Namespace) -> None:
    address = address_of(arguments)
    started = datetime.now(UTC)
    output = arguments.output or Path("results/bench") / f"{started:%Y-%m-%dT%H%M%SZ}"
    if (output / "bench.json").exists():
        raise ConfigError(f"--output {output}: has a bench already; give another folder")
    points = _points(arguments)
    asked = ask(address, arguments.model)
    wanted = arguments.input_tokens + arguments.output_tokens
    if asked.longest_tokens is not None and wanted > asked.longest_tokens:
        lengths = f"--input-tokens and --output-tokens are {wanted:,} together"
        raise ConfigError(f"{lengths}, and {asked.model} takes {asked.longest_tokens:,}")
    seed = secrets.randbits(31)
    target = Target(
        address,
        asked.model,
        arguments.endpoint,
        arguments.output_tokens,
        arguments.timeout,
        tokenizer=arguments.tokenizer and arguments.tokenizer.absolute(),
    )
    log_line(f"{asked.model} at {address.url}: asking how it counts tokens")
    accepted = find_accepted(target, seed)
    results = _visits(target, accepted, points, arguments, seed)
    tables = [pa.concat_tables([result.records for result in results[point]]) for point in points]
    counted = means(tables)
    client = CLIENTS.get(CLIENT)
    bench = Bench(
        asked=asked,
        load=BenchLoad(
            endpoint=arguments.endpoint,
            input_tokens=arguments.input_tokens,
            output_tokens=arguments.output_tokens,
            is_length_forced=accepted.is_length_forced,
            mean_input_tokens=counted["input_tokens"],
            mean_output_tokens=counted["output_tokens"],
            visits=arguments.visits,
            seed=seed,
        ),
        points=[
            point_result(point, arguments.endpoint, records, [result.stats for result in results[point]])
            for point, records in zip(points, tables, strict=True)
        ],
        client=f"{client.name} {client.version}",
        servelab=version("servelab"),
        host=socket.gethostname(),
        started_at=started.isoformat(timespec="seconds"),
        finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    output.mkdir(parents=True, exist_ok=True)
    named = [
        table.append_column("load", pa.array([point.name] * len(table), pa.string()))
        for point, table in zip(points, tables, strict=True)
    ]
    pq.write_table(pa.concat_tables(named), output / "requests.parquet")
    write_page(bench_page(bench), output / "bench.html", output / "bench.md")
    bench.write(output / "bench.json")
    print("\n".join(plain_words(bench)))
    print(f"Report: {output / 'bench.html'}")


def address_of(arguments: argparse.Namespace) -> Address:
    for file in filter(None, (arguments.ca, arguments.tokenizer)):
        if not file.is_file():
            raise ConfigError(f"{file}: no such file")
    if arguments.ca:
        os.environ["SSL_CERT_FILE"] = str(arguments.ca.absolute())
    url, headers = checked_url(arguments.url), dict(arguments.header_env)
    for variable in (arguments.api_key_env, *headers.values()):
        check_key(url, variable, arguments.key_over_http, "--key-over-http")
    address = Address(url, arguments.model, arguments.api_key_env, headers, arguments.insecure)
    _ = address.headers  # an error if a variable has no value
    return address


def _visits(
    target: Target, accepted: Accepted, points: list[Point], arguments: argparse.Namespace, seed: int
) -> dict[Point, list[LoadResult]]:
    """The results of each load in each visit. Every other visit begins with the last load, against drift."""
    results: dict[Point, list[LoadResult]] = {point: [] for point in points}
    for visit in range(arguments.visits):
        for point in points if visit % 2 == 0 else reversed(points):
            log_line(f"visit {visit + 1} of {arguments.visits}: {point.name}, {point.requests} requests")
            number = 1 + visit * len(points) + points.index(point)
            result = send_point(
                target,
                accepted,
                point,
                visit=visit,
                seed=(seed + number) % (1 << 31),
                input_tokens=arguments.input_tokens,
                warmup=arguments.warmup,
            )
            results[point].append(result)
    return results


def _points(arguments: argparse.Namespace) -> list[Point]:
    loads = [(None, rate) for rate in arguments.rate] if arguments.rate else [(n, None) for n in arguments.concurrency]
    if len(set(loads)) < len(loads):
        raise ConfigError("a load is given twice")
    return [
        Point(
            many, rate, arguments.requests or max(_FEWEST_REQUESTS, round(_RATE_S * rate if rate else _PER_SLOT * many))
        )
        for many, rate in loads
    ]


def _count(text: str) -> int:
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return value


def _positive(text: str) -> float:
    if not 0 < (value := float(text)) < float("inf"):
        raise argparse.ArgumentTypeError("must be above 0")
    return value
