"""Finds serving commands and load clients' commands in lines, and what a command says of itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from servelab.recorded.draft.markup import Lines
from servelab.study.recorded.commands import MODEL_OPTIONS, ServingCommand, read_command

MOST_COMMAND = 8000
"""Characters of a command; longer ones are no command."""
_PROMPT = re.compile(r"(?:[$❯+#]|#!cmd|\(\w+\)\s*\$|[\w.-]+@[\w.-]+:[^$#]{0,80}[$#])\s+(?=\S)")
_BEFORE = re.compile(r"(?:(?:[A-Za-z_]\w*=\S*|export|sudo|nohup|env|time|exec)\s+)+")
_SERVES = re.compile(
    r"(?:\S*/)?(?:[a-z][\w.-]*\s+serve|trtllm-serve|mpirun\s.*trtllm-serve|llama-server|[\w.-]+-server"
    r"|text-generation-launcher|text-embeddings-router|tritonserver|mindieservice_daemon|ktransformers|mlx_lm\.server"
    r"|python3?(?:\.\d+)?\s+(?:-[a-zA-Z]\s+)*(?:-m\s+)?\S*(?:launch_server|api_server|openai_server|serve|server|run_server)(?:\.py)?"
    r"|(?:docker|podman|nerdctl)\s+run\s.*(?:vllm|sglang|trtllm|tensorrt|text-generation-inference|lmdeploy|mindie|llama)\S*)"
    r"(?=\s|$)"
)
_CLIENT = re.compile(
    r"(?:\S*/)?(?:vllm\s+bench|guidellm|aiperf|genai-perf|genai-bench|evalscope|ais_bench|trtllm-bench|llama-bench|llmperf"
    r"|python3?\s+(?:-m\s+)?\S*(?:bench|profile_restful|token_benchmark|load_test)\S*)(?=\s|$)"
)
_ASSIGNMENT = re.compile(r"(?:export\s+)?([A-Za-z_]\w*=(?:'[^']*'|\"[^\"]*\"|\S*))\s*;?")
_ENDS = re.compile(r"\s+(?:\d?>{1,2}\s*\S+|\d?>&\d|\|\s|&&\s|&$|;\s).*$|\s*[&;]$")
_FOLDED = re.compile(r"\s\\\s+(?=-)")
"""A line of a command that went on in the next, in one."""
_MODEL = re.compile(r"[\w.-]+/[\w.-]+(?:/[\w.-]+)*|[A-Za-z][\w.]*-[\w.-]+")


@dataclass(frozen=True)
class EngineName:
    """How an engine is recognised in text and in commands."""

    key: str
    title: str
    words: re.Pattern[str]
    start: str | None = None
    """How its commands begin, with `{model}`."""


def _engine(key: str, title: str, words: str, start: str | None = None) -> EngineName:
    return EngineName(key, title, re.compile(rf"(?<![a-z0-9])(?:{words})(?![a-z0-9])", re.IGNORECASE), start)


ENGINES = (
    _engine("vllm-ascend", "vLLM-Ascend", "vllm[- _]ascend", "vllm serve {model}"),
    _engine("vllm", "vLLM", "vllm(?![- _]ascend)", "vllm serve {model}"),
    _engine("sglang", "SGLang", "sglang|sgl", "python3 -m sglang.launch_server --model-path {model}"),
    _engine("tensorrt-llm", "TensorRT-LLM", r"tensorrt[- _]?llm|trt[- _]?llm|trtllm[\w-]*|trt", "trtllm-serve {model}"),
    _engine("lmdeploy", "LMDeploy", "lmdeploy|turbomind"),
    _engine("mindie", "MindIE", "mindie(?:service)?(?:_daemon)?"),
    _engine("tgi", "TGI", "tgi|text[- ]generation[- ](?:inference|launcher)"),
    _engine("llama.cpp", "llama.cpp", r"llama\.?[- ]?cpp|llama-server"),
    _engine("ollama", "Ollama", "ollama"),
    _engine("ktransformers", "KTransformers", "ktransformers"),
    _engine("mlx", "MLX", "mlx(?:_lm)?"),
)


@dataclass(frozen=True)
class Found:
    """A command of a page."""

    text: str
    """In one line, without prompt, redirections and what runs after it."""
    index: int
    """Index of its first line in the page's lines."""
    last: int
    """Index of its last line."""
    is_client: bool
    is_rewritten: bool = False
    """Whether variables set in lines before it were put in front, or something after it was cut off."""


def commands_in(lines: Lines, first: int, last: int) -> Iterator[Found]:
    """The commands in some lines of a page, a continued one in one line."""
    variables: list[str] = []
    index = first
    while index <= last:
        text, end = _joined(lines, index, last)
        bare = _PROMPT.sub("", text, count=1) if _PROMPT.match(text) else text
        found = _command(bare)
        if found:
            command, is_client, is_cut = found
            set_before = [] if is_client else variables
            yield Found(" ".join([*set_before, command]), index, end, is_client, is_cut or bool(set_before))
        elif _ASSIGNMENT.fullmatch(bare):
            variables += [match[1] for match in [_ASSIGNMENT.fullmatch(bare)] if match]
        index = end + 1


def unknown_command(lines: Lines, first: int, last: int) -> Found | None:
    """The first line that is no comment, where text says that a command follows and none is known."""
    for index in range(first, last + 1):
        text, end = _joined(lines, index, last)
        bare = _PROMPT.sub("", text, count=1) if _PROMPT.match(text) and not text.startswith("#") else text
        if not bare or bare.startswith(("#", "//")):
            continue
        cut = _ENDS.sub("", bare)
        try:
            command = read_command(cut)
        except ValueError:
            return None
        if len(cut) > MOST_COMMAND or not re.match(r"[\w./~-]+(?:\s|$)", cut) or not (command.options or command.model):
            return None
        return Found(cut, index, end, is_client=False, is_rewritten=True)
    return None


def options_in(lines: Lines, first: int, last: int) -> Found | None:
    """Options without a program, where a code has nothing else: one after the other, values with braces in quotes."""
    words: list[str] = []
    for index in range(first, last + 1):
        text = lines[index][1].strip().rstrip("\\").strip()
        if not text or text.startswith("#"):
            continue
        if not re.match(r"--?[a-zA-Z]", text) or len(words) > 400:
            return None
        words += [_quoted(word) for word in text.split()]
    text = " ".join(words)
    try:
        parts = read_command(f"x {text}")
    except ValueError:
        return None
    if (
        not words
        or len(text) > MOST_COMMAND
        or len(parts.words) > 1
        or not any(word.startswith("--") for word in words)
    ):
        return None
    return Found(text, first, last, is_client=False)


def _quoted(word: str) -> str:
    name, equals, value = word.partition("=")
    if "{" not in word or "'" in word:
        return word
    return f"{name}={chr(39)}{value}{chr(39)}" if equals and name.startswith("-") else f"'{word}'"


def inline_command(text: str) -> str | None:
    """The serving command that a piece of text is, or begins with; None if it is none."""
    found = _command(text.strip().strip("`").strip())
    return found[0] if found and not found[1] else None


def _joined(lines: Lines, index: int, last: int) -> tuple[str, int]:
    text, end = lines[index][1].strip(), index
    while text.endswith("\\") and end < last and len(text) < MOST_COMMAND:
        end += 1
        text = f"{text[:-1].rstrip()} {lines[end][1].strip()}"
    return _FOLDED.sub(" ", text.rstrip("\\").rstrip()), end


def _command(text: str) -> tuple[str, bool, bool] | None:
    """A line's command, whether a load client's, and whether something of the line is left out."""
    if not text or len(text) > MOST_COMMAND:
        return None
    before = _BEFORE.match(text)
    rest = text[before.end() :] if before else text
    variables = [word for word in (before[0].split() if before else []) if "=" in word]
    is_client = _CLIENT.match(rest) is not None
    if not is_client and not _SERVES.match(rest):
        return None
    cut = _ENDS.sub("", rest)
    whole = " ".join([*variables, cut])
    try:
        command = read_command(whole)
    except ValueError:
        return None
    if not is_client and not _is_complete(command, whole):
        return None
    return whole, is_client, whole != text


def _is_complete(command: ServingCommand, text: str) -> bool:
    """Whether it is a command and not a sentence that begins like one."""
    if command.options:
        return True
    words = text.split()
    return len(words) <= 6 and (command.model is None or _MODEL.fullmatch(words[-1]) is not None)


def engine_of_command(text: str) -> EngineName | None:
    """The engine whose program, module or image a command starts."""
    head = " ".join(word for word in text.split() if "=" not in word or word.startswith("-"))
    found = [(match.start(), engine) for engine in ENGINES if (match := engine.words.search(head.replace("_", "-")))]
    return min(found, key=lambda each: each[0])[1] if found else None


def engines_named(text: str) -> list[EngineName]:
    """Engines that a text names."""
    return [engine for engine in ENGINES if engine.words.search(text)]


def model_of(text: str) -> str | None:
    """The model that a command serves."""
    try:
        command = read_command(text)
    except ValueError:
        return None
    for name in (*MODEL_OPTIONS, "--model-name", "--model-id", "--model_path", "--hf-repo", "-hf"):
        if command.options.get(name):
            return command.options[name]
    words = [word for word in command.words if _MODEL.fullmatch(word)]
    return (
        words[-1] if len(words) > 1 or (words and len(command.words) > 1 and command.words[-1] == words[-1]) else None
    )


_PARALLEL = (
    ("-tp", "--tp", "--tp-size", "--tp_size", "--tensor-parallel-size", "--tensor_parallel_size", "--tensor-parallel"),
    ("-pp", "--pp", "--pp-size", "--pp_size", "--pipeline-parallel-size", "--pipeline_parallel_size"),
)
_DATA_PARALLEL = ("-dp", "--data-parallel-size", "--data_parallel_size", "--dp-size", "--dp")


def accelerators_of(text: str) -> int | None:
    """How many accelerators a command uses: tensor × pipeline × data parallelism; None if it says nothing of them."""
    try:
        options = read_command(text).options
    except ValueError:
        return None
    product, said = 1, False
    groups = [*_PARALLEL] if "--enable-dp-attention" in options else [*_PARALLEL, _DATA_PARALLEL]
    for names in groups:
        for name in names:
            value = options.get(name)
            if value and value.isdigit() and 0 < int(value) <= 4096:
                product, said = product * int(value), True
                break
    return product if said else None


def with_options(command: str, fragment: str) -> str | None:
    """A command with some options set as in a fragment (`--name value`, `VAR=x`); None if it is no fragment."""
    try:
        added = read_command(f"x {fragment}")
        base = read_command(command)
    except ValueError:
        return None
    if len(added.words) > 1 or not added.options:
        return None
    text = command
    for name, value in added.options.items():
        new = name if value is None else f"{name}{_joint(fragment, name)}{value}"
        if name in base.options:
            text = re.sub(rf"(?<!\S){re.escape(name)}(?:(?:=|\s+)(?!-)\S+)?", lambda _, new=new: new, text, count=1)  # type: ignore[misc]
        else:
            text = f"{text} {new}"
    return text


def _joint(fragment: str, name: str) -> str:
    return "=" if f"{name}=" in fragment else " "
