"""A simulated server on made-up H100: `stand_in.py part.json <the engine's own command line>`.

It knows the flags that the release's parser knows, divides an H100's memory, takes a made-up time to load, prints the
release's lines, and then answers the OpenAI API, `/health`, `/v1/models` and `/metrics` as its scheduler decides.
Nothing is measured: step times are those of simulated-steps-*.json, and `slower` in part.json says how many seconds
pass for one of theirs. Who only adds up milliseconds, without a server, gets the same from `simulated_tokens_per_s`.
"""

import json
import os
import sys
import time
from collections import OrderedDict, deque
from dataclasses import dataclass
from itertools import accumulate, takewhile
from math import ceil
from pathlib import Path
from random import Random
from types import SimpleNamespace

import numpy as np
import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))
from bench.bench_stub import HEAD, Schedule, Stream, Stub, answer_of
from engines.double.serve import answered_question, read_settings, say

SERVERS = yaml.safe_load(Path(__file__).with_name("servers.yaml").read_text())
_READ = [json.loads(file.read_text()) for file in Path(__file__).parent.glob("simulated-steps-*.json")]
STEPS = {steps["num_hidden_layers"]: steps for steps in _READ}
GIB = 1 << 30
MEMORY_GIB, DRIVER_GIB, STEP_GIB = 79.19, 1.0, 2.0
"""What PyTorch sees of an H100, and what the driver, and a step of TensorRT-LLM, take outside their shares."""
BLOCK = 16
LOADING_S, GRAPHS_S = 2.0, 1.0  # a real load takes a minute or more
BETWEEN_STARTS, BETWEEN_STEPS = 0.015, 0.02
ACCEPTED = 0.7  # of drafted tokens, each if the one before it is; made up
LARGEST_SHARE = 0.97  # with more of the memory, a step that is half full of prompts finds none left
HITS, QUERIES = "prefix_cache_hit_tokens_total", "prefix_cache_query_tokens_total"
DRAFTS = ("drafts_total", "draft_tokens_total", "accepted_draft_tokens_total")
COUNTED = ("preemptions_total", "prompt_tokens_total", "generation_tokens_total", HITS, QUERIES, *DRAFTS)  # `/metrics`


def launched(server, given, model, gpus):
    """The launch that flags and their values ask for, in GiB of one GPU; what is `refused` in servers.yaml ends it."""
    config = json.loads((model / "config.json").read_text())
    said = {name: next((given[each] for each in flags if each in given), "") for name, flags in server["flags"].items()}
    doubled = ("tokens", "sequences") if said.get("mode") == "throughput" else ()
    own = {name: value * (1 + (name in doubled)) for name, value in server["defaults"].items()}
    own = {name: type(value)(said.get(name) or value) for name, value in own.items()}
    switched = {name: on for flag, (name, on) in server["switches"].items() if flag in given}
    groups = config.get("full_attention_interval", 1)  # of so many layers one keeps all tokens, the others a state
    has_pool = groups > 1 and "state_pool" in server
    launch = SimpleNamespace(
        **{**config, "prefixes": groups == 1 or has_pool, "chunked": True, "experts": False, **own, **switched},
        drafted=json.loads(said.get("drafts") or "{}").get("num_speculative_tokens", 0),
        context=int(said["context"].replace("auto", "-1") or config["max_position_embeddings"]),
        steps=STEPS[config["num_hidden_layers"]],
    )
    stored = config.get("quantization_config", {})
    launch.block = stored.get("weight_block_size", [1])[0]
    launch.experts &= "num_experts" in config
    launch.each = config.get("moe_intermediate_size", launch.intermediate_size) / (launch.experts or launch.tensor)
    is_fp8 = "fp8" in (stored.get("quant_method"), said.get("quantization"))
    has_fp8_cache = said.get("kv_dtype", "").startswith("fp8")
    size = sum(file.stat().st_size for file in model.glob("*.safetensors")) / GIB
    launch.weights = size * (0.52 if is_fp8 and not stored else 1) / launch.tensor
    drawing = 1.38e-5 * launch.vocab_size * launch.sequences
    working = 0.3 + max(drawing, launch.steps["token_mib"] * launch.tokens) / 1024
    launch.kv = {
        "inside": MEMORY_GIB * launch.share - launch.weights - working,
        "static": (MEMORY_GIB - DRIVER_GIB) * launch.share - launch.weights,
        "free": (MEMORY_GIB - STEP_GIB - launch.weights) * launch.share,
    }[server["kv"]]
    heads = max(1, launch.num_key_value_heads / launch.tensor)
    layers, state = launch.num_hidden_layers // groups, launch.steps.get("state_kib", 0) * 1024 / launch.tensor
    each = 2 * layers * heads * launch.head_dim * (1 if has_fp8_cache else 2)
    if has_pool:
        launch.kv /= 1 + server["state_pool"]
        states = server["state_pool"] * launch.kv * GIB / state / layers / (groups - 1)
        launch.sequences, state, groups = min(launch.sequences, int(states / 3)), 0, 1  # two thirds are of prefixes
    launch.page = BLOCK * max(1, ceil(state * layers / each / BLOCK))  # a state takes a block
    launch.states = (groups - 1) * (1 + launch.drafted)
    launch.blocks_of = lambda tokens: -(-tokens // launch.page) + launch.states
    launch.blocks = int(launch.kv * GIB / each) // launch.page
    launch.kv_tokens = launch.blocks // groups * launch.page
    launch.context = min(launch.kv_tokens, config["max_position_embeddings"]) if launch.context < 0 else launch.context
    needed = max(1, launch.blocks_of(launch.context))
    launch.needed, launch.concurrency = needed * launch.page * each / GIB, launch.blocks / needed
    refused = {
        "heads": launch.num_attention_heads % launch.tensor,
        "gpus": launch.tensor > gpus,
        "experts" if "num_experts" in config else "blocks": launch.each % launch.block,
        "weights": launch.weights > MEMORY_GIB,
        "chunks": launch.states and launch.prefixes and not launch.chunked,
        "cache": launch.kv_tokens <= 0,
        "context": launch.blocks < needed and "context" in server["refused"],
    }
    launch.refused = next((kind for kind, applies in refused.items() if applies), None)
    formats = ["fp8" if narrow else "bfloat16" for narrow in (is_fp8, has_fp8_cache)]
    key = " ".join([server["table"], *formats, str(launch.tensor)] + ["EP"] * launch.experts)
    launch.ms = launch.refused or launch.steps["ms"][key]
    launch.gain = sum(ACCEPTED**each for each in range(1 + launch.drafted))
    return launch


@dataclass(eq=False)
class Request:
    """A request, how far it is, and the keys of its prompt's whole blocks, each with all that is before it."""

    prompt: list
    outputs: int
    made = computed = cached = blocks = fraction = 0

    @property
    def left(self):
        return len(self.prompt) + self.made - self.computed


class Scheduler:
    """Continuous batching: who runs goes on first, then who waits is let in while tokens, sequences and blocks last."""

    def __init__(self, launch):
        self.launch, self.all_blocks = launch, launch.blocks
        self.waiting, self.running = deque(), []
        self.kept = OrderedDict()  # keys of blocks that a later request may use, the oldest first
        self.counts = dict.fromkeys(COUNTED, 0)

    def add(self, request):
        page, prompt = self.launch.page, request.prompt
        blocks = (tuple(prompt[at : at + page]) for at in range(0, len(prompt) - page, page))
        request.keys = list(accumulate(blocks, lambda before, block: hash((before, block))))
        self.waiting.append(request)

    @property
    def free_blocks(self):
        return self.all_blocks - sum(request.blocks for request in self.running)

    def step(self):
        """Milliseconds of the next step, and each request that is in it with its tokens."""
        budget, taken = self.launch.tokens, []
        for request in list(self.running):
            tokens = min(budget, request.left + self.launch.drafted * (request.made > 0))
            if request in self.running and tokens and self._grow(request, tokens):
                budget -= tokens
                taken.append((request, tokens))
        while self.waiting and budget > 0 and len(self.running) < self.launch.sequences:
            request = self.waiting[0]
            found = self.launch.prefixes * sum(1 for _ in takewhile(self.kept.__contains__, request.keys))
            request.computed = found * self.launch.page
            tokens = min(budget, request.left)
            needed = self.launch.blocks_of(request.computed + tokens)
            if needed > self.free_blocks or (tokens < request.left and not self.launch.chunked):
                break
            request.blocks = needed
            request.cached = request.cached if request.made else request.computed
            self.running.append(self.waiting.popleft())
            self.counts[HITS] += request.computed
            self.counts[QUERIES] += len(request.prompt)
            budget -= tokens
            taken.append((request, tokens))
        taken = [each for each in taken if each[0] in self.running]
        decoding = sum(each.made > 0 for each, _ in taken)
        by_prompt = [np.interp(max(1, decoding), self.launch.steps["sequences"], row) for row in self.launch.ms]
        prompts = sum(tokens for _, tokens in taken) - decoding
        drafting = self.launch.drafted and self.launch.drafted * self.launch.steps["draft_ms"] * (decoding > 0)
        return drafting + float(np.interp(prompts, self.launch.steps["prompt_tokens"], by_prompt)), taken

    def crash(self, taken):
        """The kind of lines with which a step ends the server, if it does."""
        launch, tokens = self.launch, sum(tokens for _, tokens in taken)
        most = launch.tokens / 2 if launch.share > LARGEST_SHARE else tokens
        if tokens > min(most, launch.steps.get("largest_step", tokens)):
            return "memory"
        return "attention" if vars(launch).get("attention") == "XFORMERS" else None

    def end(self, taken):
        """The end of a step; the requests that have a token now."""
        answered = []
        for request, tokens in taken:
            request.computed += tokens
            if request.left > 0:
                continue
            if not request.made:
                self.counts["prompt_tokens_total"] += len(request.prompt)
                self.kept.update(dict.fromkeys(request.keys))
                while len(self.kept) > self.all_blocks:
                    self.kept.popitem(last=False)
            drafted = self.launch.drafted * (request.made > 0)
            drawn, request.fraction = divmod(request.fraction + (self.launch.gain if request.made else 1), 1)
            made = int(min(drawn, request.outputs - request.made))
            request.made += made
            request.computed += request.left - 1  # what is refused of the drafted
            self.counts["generation_tokens_total"] += made
            for name, more in zip(DRAFTS, (drafted > 0, drafted, made - 1), strict=True):
                self.counts[name] += more
            answered.append(request)
            if request.made >= request.outputs:
                self.running.remove(request)
        return answered

    def _grow(self, request, tokens):
        """Takes blocks for the next tokens of a request; the last that runs gives way, which may be the request."""
        needed = self.launch.blocks_of(request.computed + tokens) - request.blocks
        while needed > self.free_blocks:
            victim = self.running.pop()
            victim.computed = victim.blocks = 0
            self.waiting.appendleft(victim)
            self.counts["preemptions_total"] += 1
            if victim is request:
                return False
        request.blocks += max(0, needed)
        return True


def simulated_tokens_per_s(launch, requests, in_flight, tpot_ms):
    """Total tokens a second without noise, so many requests at a time; 0 if refused, crashed or above the mean TPOT."""
    if launch.refused:
        return 0.0
    scheduler, ms, spent, left = Scheduler(launch), 0.0, 0.0, deque(requests)
    while left or scheduler.running or scheduler.waiting:
        while left and len(scheduler.running) + len(scheduler.waiting) < in_flight:
            scheduler.add(left.popleft())
        took, taken = scheduler.step()
        if scheduler.crash(taken):
            return 0.0
        ms += took
        spent += ms * sum((each.made == each.outputs) - (each.made == 1) for each in scheduler.end(taken))
    kept = spent <= tpot_ms * sum(each.outputs - 1 for each in requests)
    return kept * 1000 * sum(len(each.prompt) + each.outputs for each in requests) / ms


class Server(Stub):
    """The loop: a step ends when it is due, whenever this process gets to it, so that a busy machine adds no time."""

    def __init__(self, part, settings, launch, draw):
        super().__init__(Schedule(), (settings["host"], int(settings["port"])))
        self._part, self._scheduler, self._draw = part, Scheduler(launch), draw
        self._model = settings.get("--served-model-name", settings["model"])
        self._pace = part["slower"] * draw.lognormvariate(0, BETWEEN_STARTS)
        self._streams, self._due_ns, self._taken = {}, 0, []

    def run(self):
        while True:
            self.poll(max(0.0, (self._due_ns - time.monotonic_ns()) / 1e9) if self._due_ns else -1)
            if self._due_ns and self._due_ns <= time.monotonic_ns():
                for request in self._scheduler.end(self._taken):
                    self._send_token(request)
                self._begin_step(self._due_ns)

    def _begin_step(self, now_ns):
        self._due_ns = 0
        if self._scheduler.running or self._scheduler.waiting:
            ms, self._taken = self._scheduler.step()
            if kind := self._scheduler.crash(self._taken):
                end(self._part, kind)
            self._due_ns = now_ns + int(1e6 * ms * self._pace * self._draw.lognormvariate(0, BETWEEN_STEPS))

    def _send_token(self, request):
        stream, chat = self._streams[request]
        _, event, last, closing = answer_of(chat, request.outputs, len(request.prompt), request.cached)
        stream.left = request.outputs - request.made
        self.write(stream, event if stream.left else last + closing)

    def answer(self, method, path):
        part, scheduler, told = self._part, self._scheduler, ""
        if path == b"/v1/models":
            told = json.dumps({"data": [{"id": self._model, "max_model_len": scheduler.launch.context}]})
        elif path == part.get("metrics_path", "").encode():
            counts = scheduler.counts | {
                "requests_running": len(scheduler.running),
                "requests_waiting": len(scheduler.waiting),
                "kv_cache_usage_fraction": 1 - scheduler.free_blocks / scheduler.all_blocks,
            }
            names = part["metric_names"]
            told = "".join(f'{name}{{model_name="m"}} {counts[key]}\n' for key, name in names.items() if key in counts)
        elif method == b"POST" and path == part.get("reset_path", "").encode():
            scheduler.kept.clear()
            told = part["reset_answer"]
        elif path != part["ready_path"].encode():
            return b"404 Not Found", b"{}"
        return b"200 OK", told.encode()

    def _begin(self, connection, body, chat, keeps, at_ns):
        connection.data, launch = b"", self._scheduler.launch
        asked = body["messages"] if chat else body["prompt"]
        prompt = json.dumps(asked).split() if chat or isinstance(asked, str) else asked
        outputs = body.get("max_completion_tokens") or body["max_tokens"]
        longest = min(launch.context, launch.kv_tokens)
        if len(prompt) + outputs > longest or (len(prompt) > launch.tokens and not launch.chunked):
            message = f"This model's maximum context length is {longest} tokens. However, you requested more."
            self.reply(connection, b"400 Bad Request", json.dumps({"error": {"message": message}}).encode())
            return
        stream, request = Stream(connection.sock), Request(prompt, outputs)
        stream.keeps, stream.left = keeps, outputs
        self._streams[request] = stream, chat
        connection.sock.send(HEAD + (b"\r\n" if keeps else b"Connection: close\r\n\r\n") + answer_of(chat, outputs)[0])
        self._scheduler.add(request)
        if not self._due_ns:
            self._begin_step(time.monotonic_ns())


def end(part, kind, **values):
    """Ends as the release does, with its line."""
    print(part["server"]["refused"][kind].format(pid=os.getpid(), **values), file=sys.stderr, flush=True)
    os._exit(1)


def main():
    part, arguments = json.loads(Path(sys.argv[1]).read_text()), sys.argv[2:]
    if answered_question(part, arguments):
        return
    settings = read_settings(part, [word for word in arguments if word not in part["program"]])
    if not Path(settings["model"]).exists():
        say(part, "missing_model", model=settings["model"])
        sys.exit(1)
    with Path(sys.argv[1]).with_name("starts").open("a") as starts:  # each start has noise of its own
        starts.write(".")
        draw = Random(1000 * part["seed"] + starts.tell())
    loading, graphs = (part["slower"] * each * draw.lognormvariate(0, 0.1) for each in (LOADING_S, GRAPHS_S))
    time.sleep(loading)
    gpus = len(os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(","))
    launch = launched(part["server"], {**os.environ, **settings}, Path(settings["model"]), gpus)
    if launch.refused:
        end(part, launch.refused, gpus=gpus, **vars(launch))
    time.sleep(graphs)
    server = Server(part, settings, launch, draw)
    told = {**settings, **vars(launch), "loading": loading, "graphs": graphs, "half": launch.kv / 2, "pid": os.getpid()}
    lines = "\n".join(part["server"]["loaded"])
    print(lines.format(**told), file=sys.stderr, flush=True)
    server.run()


if __name__ == "__main__":
    main()
