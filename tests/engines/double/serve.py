"""A process double of an engine's server: `serve.py part.json <the engine's own command line>`.

It stands in for engines whose accelerators are not at hand. `part.json` (see `doubles.py`) says which flags its release
knows, what it prints and how it behaves; nothing here knows an engine. It reads its port and model from that command
line, or from the configuration file the engine reads, starts worker processes that ignore SIGTERM, some in a session of
their own, answers with streams of the asked length, keeps prompts until its caches are reset, and fails as told.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

TOKEN_S = 0.005
POLL_S = 0.1
BLOCK = 16


def say(part: dict[str, Any], kind: str, **values: object) -> None:
    """Prints the release's own lines of a kind, with what belongs to this start filled in."""
    for line in part["lines"].get(kind, []):
        for name, value in values.items():
            line = line.replace(f"<{name}>", str(value))
        print(line, file=sys.stderr, flush=True)


def read_flags(part: dict[str, Any], arguments: list[str]) -> dict[str, str]:
    """Flags and their values; ends as the release's parser does on one it does not know.

    A list of flags does not say which take a value: what follows one and is no flag is taken for its value.
    """
    known = set(part["flags"])
    given: dict[str, str] = {}
    positional: list[str] = []
    unknown: list[str] = []
    name = ""
    for word in arguments:
        if not word.startswith("-") or word.lstrip("-")[:1].isdigit():
            if name in unknown:
                unknown.append(word)
            elif name:
                given[name] = word
            else:
                positional.append(word)
            name = ""
            continue
        name, _, value = word.partition("=")
        if name not in known and name.replace("--no-", "--", 1) not in known:
            unknown.append(name)
        else:
            given[name] = value
            name = "" if value else name
    if unknown:
        say(part, "unsupported_argument", flag=unknown[0], flags=" ".join(unknown))
        sys.exit(2)
    return given | {str(place): word for place, word in enumerate(positional)}


def read_settings(part: dict[str, Any], arguments: list[str]) -> dict[str, str]:
    """What the double goes by: host, port, model and the longest context."""
    places = part["settings"]
    if variable := part.get("configuration_variable"):
        document = json.loads(Path(os.environ[variable]).read_text())
        settings = {}
        for name, path in places.items():
            value = document
            for key in path:
                value = value[key]
            settings[name] = str(value)
        return settings
    given = read_flags(part, arguments)
    if part.get("model_may_be_a_word") and places["model"] not in given:
        given[places["model"]] = given["0"]
    return {**given, **{name: given[flag] for name, flag in places.items() if flag in given}}


class Workers:
    """Processes that bear the engine's own names for them and ignore SIGTERM."""

    def __init__(self, part: dict[str, Any]) -> None:
        self._launcher = part.get("launcher_collects", False)
        read, write = os.pipe()
        if self._launcher and os.fork():
            os.close(write)
            self.pids = [int(pid) for pid in os.read(read, 4096).split()]
            return
        started = [
            subprocess.Popen(
                [name, "86400"],
                executable="/bin/sleep",
                stdin=subprocess.DEVNULL,
                start_new_session=bool(number % 2),
                preexec_fn=lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN),
            )
            for number, name in enumerate(part["workers"])
        ]
        self.pids = [process.pid for process in started]
        self._processes = started  # a collected object would take the exit status of its process
        if self._launcher:
            os.write(write, " ".join(map(str, self.pids)).encode())
            os.close(write)
            os.wait()
            for process in started:  # the launcher of a parallel job ends it all when one process dies
                process.kill()
                process.wait()
            os._exit(1)

    def lost(self) -> int | None:
        """The first worker that has died, collected or not."""
        for pid in self.pids:
            try:
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                return pid
            if state == "Z":
                return pid
        return None

    def kill(self) -> None:
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)


class Engine:
    """What requests share."""

    def __init__(self, part: dict[str, Any], arguments: list[str], workers: Workers, nodes: Nodes) -> None:
        self.part, self.workers, self.nodes = part, workers, nodes
        self.slots = threading.Semaphore(4)
        self.kept: set[str] = set()
        self.dead = False
        self.counts = dict.fromkeys(part["metrics"], 0)
        flag = part.get("reports_cached_with")
        self.reports_cached = flag is None or flag in arguments
        variable = part.get("resets_with")
        self.resets = variable is None or os.environ.get(variable) == "1"

    def count(self, metric: str, change: int) -> None:
        if metric in self.counts:
            self.counts[metric] += change


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    engine: Engine

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, status: int, text: str = "", kind: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_GET(self) -> None:
        part = self.engine.part
        if self.path == part["ready_path"]:
            self.answer(503 if self.engine.dead else 200)
        elif self.path == part.get("metrics_path"):
            names = part["metrics"]
            lines = [f'{names[key]}{{model_name="m"}} {value}' for key, value in self.engine.counts.items()]
            self.answer(200, "\n".join([*lines, ""]))
        else:
            self.answer(404)

    def do_POST(self) -> None:
        part = self.engine.part
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == part.get("reset_path") and self.engine.resets:
            self.engine.kept.clear()
            self.answer(200, part["reset_answer"])
        elif self.path in ("/v1/completions", "/v1/chat/completions"):
            self.generate(json.loads(body))
        else:
            self.answer(404)

    def generate(self, body: dict[str, Any]) -> None:
        engine = self.engine
        if engine.dead:
            self.answer(500, json.dumps({"error": {"message": "the engine is dead"}}), "application/json")
            return
        prompt = json.dumps(body.get("prompt", body.get("messages")))
        length = len(body["prompt"]) if isinstance(body.get("prompt"), list) else len(prompt.split())
        cached = (length - 1) // BLOCK * BLOCK if prompt in engine.kept else 0
        engine.kept.add(prompt)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with engine.slots:
            engine.count("requests_running", 1)
            engine.count("prompt_tokens_total", length)
            try:
                self.stream(body, length, cached)
            except OSError:  # the client went away
                self.close_connection = True
            engine.count("requests_running", -1)

    def stream(self, body: dict[str, Any], length: int, cached: int) -> None:
        engine, count, chat = self.engine, body["max_tokens"], "messages" in body
        for number in range(count):
            time.sleep(TOKEN_S)
            while (engine.workers.lost() or engine.nodes.lost()) and not engine.dead:
                time.sleep(POLL_S)
            if engine.dead:
                self.event({"error": {"message": "the engine is dead", "code": 500}})
                self.wfile.write(b"0\r\n\r\n")
                return
            said = {"delta": {"content": " a"}} if chat else {"text": " a"}
            reason = "length" if number == count - 1 else None
            self.event({"choices": [{"index": 0, **said, "finish_reason": reason}]})
            engine.count("generation_tokens_total", 1)
        usage: dict[str, Any] = {"prompt_tokens": length, "completion_tokens": count, "total_tokens": length + count}
        if engine.reports_cached:
            usage["prompt_tokens_details"] = {"cached_tokens": cached}
        if body.get("stream_options", {}).get("include_usage"):
            self.event({"choices": [], "usage": usage})
        self.chunk(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def event(self, content: dict[str, Any]) -> None:
        self.chunk(b"data: " + json.dumps(content).encode() + b"\n\n")

    def chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


class Nodes:
    """The parts of a server on several nodes: the first waits for the others, which connect to it and stay.

    As the engines do, none notices that another has ended: requests hang.
    """

    def __init__(self, part: dict[str, Any], given: dict[str, str]) -> None:
        flags = part.get("nodes", {})
        self.count, self.rank = int(given.get(flags.get("count"), 1)), int(given.get(flags.get("rank"), 0))
        self._meet = [given[flag] for flag in flags.get("meet", []) if flag in given]
        self.has_health = flags.get("others_have_health", False)
        self._joined: list[socket.socket] = []

    def join(self) -> None:
        if self.count == 1:
            return
        host, _, port = ":".join(self._meet).partition(":")
        if self.rank:
            while True:
                try:
                    self._joined = [socket.create_connection((host, int(port)))]
                    return
                except OSError:
                    time.sleep(POLL_S)
        with socket.create_server((host, int(port))) as listener:
            self._joined = [listener.accept()[0] for _ in range(self.count - 1)]
            for each in self._joined:
                each.setblocking(False)

    def lost(self) -> bool:
        """Whether another node's part has ended."""
        for each in self._joined:
            with contextlib.suppress(BlockingIOError):
                if not each.recv(1):
                    return True
        return False


class Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024


def bind(part: dict[str, Any], settings: dict[str, str]) -> Listener:
    """Takes the port, on which nobody listens yet; ends as the release does where it is taken."""
    listener = Listener((settings["host"], int(settings["port"])), Handler, bind_and_activate=False)
    try:
        listener.server_bind()
        return listener
    except OSError:
        say(part, "port_taken", host=settings["host"], port=settings["port"])
        sys.exit(1)


def fail(part: dict[str, Any], kind: str, workers: Workers | None = None, **values: object) -> None:
    """Ends for a reason of the log's, as the release ends then."""
    say(part, kind, **values)
    if workers is not None:
        workers.kill()
    if part["fails_by"] == "exit":
        os._exit(1)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def watch(engine: Engine) -> None:
    """What the release does when a worker dies; some do nothing."""
    part = engine.part
    while (lost := engine.workers.lost()) is None:
        time.sleep(POLL_S)
    if part["on_worker_loss"] == "nothing":
        return
    say(part, "crashed", pid=os.getpid(), worker=lost)
    engine.dead = True
    time.sleep(part["ends_after_s"])
    if part["on_worker_loss"] == "abort":
        os.abort()
    os._exit(0)


def answered_question(part: dict[str, Any], arguments: list[str]) -> bool:
    """Whether it was asked for its version or for what it can do, and has answered."""
    if arguments[:1] == ["-c"]:
        print(part["version"])
        return True
    if arguments and arguments[0].endswith("environment_probe.py"):
        for check in json.loads(Path(arguments[1]).read_text())["checks"]:
            print("servelab-check: " + json.dumps({"check": check, "verdict": "ok", "saw": "a double"}))
        return True
    return False


def main() -> None:
    part = json.loads(Path(sys.argv[1]).read_text())
    arguments = sys.argv[2:]
    if answered_question(part, arguments):
        return
    if part["leads_its_group"]:
        os.setpgid(0, 0)
    settings = read_settings(part, [word for word in arguments if word not in part["program"]])
    nodes = Nodes(part, settings)
    listener = bind(part, settings) if part["binds_first"] and not nodes.rank else None
    if not Path(settings["model"]).exists():
        fail(part, "missing_model", model=settings["model"])
    workers = Workers(part)
    if int(settings.get("context", 0)) > part["longest_context"]:
        fail(part, "out_of_memory", workers, context=settings["context"])
    signal.signal(signal.SIGTERM, lambda *_: threading.Timer(part["sigterm_s"], os._exit, (0,)).start())
    time.sleep(float(os.environ.get("DOUBLE_STARTS_FOR_S", "0.1")))
    nodes.join()
    if nodes.rank and not nodes.has_health:
        signal.pause()
    listener = listener or bind(part, settings)
    Handler.engine = Engine(part, arguments, workers, nodes)
    say(part, "ready", port=settings["port"], host=settings["host"], pid=os.getpid())
    listener.server_activate()
    threading.Thread(target=watch, args=(Handler.engine,), daemon=True).start()
    listener.serve_forever()


if __name__ == "__main__":
    main()
