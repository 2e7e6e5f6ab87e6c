"""Engines: how their logs tell a failure, and what a server inherits. What they really do is in tests/engines."""

from __future__ import annotations

from pathlib import Path

import pytest

from servelab.core.errors import ConfigError
from servelab.engines.adapters import ENGINES
from servelab.engines.options import OPTIONS
from servelab.engines.server_to_start import Serve

LLAMA_CPP_NO_MEMORY = """\
0.00.003.863 I srv    load_model: loading model '/models/model.gguf'
0.06.100.985 E ggml_aligned_malloc: insufficient memory (attempted to allocate 2197282.50 MB)
0.06.101.016 E ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 2304017694720
0.06.488.300 E srv          init: exiting due to model loading error
RuntimeError: Failed to init server, please check the input params.
"""
LLAMA_CPP_QUANTIZED = """\
0.00.271.899 E llama_init_from_model: quantized V cache requires flash_attn to be enabled
0.00.271.937 E srv    load_model: failed to create_context with model '/models/model.gguf'
RuntimeError: Failed to init server, please check the input params.
"""
VLLM_NO_MEMORY = """\
(VllmWorker-0 pid=17042) ERROR 11-21 12:01:07 [multiproc_executor.py:953] Traceback (most recent call last):
(VllmWorker-0 pid=17042) ERROR 11-21 12:01:07 [multiproc_executor.py:953] ValueError: Available memory on node 0 \
(8.09/9.71 GiB) on startup is less than desired CPU memory utilization (0.92, 8.94 GiB).
(EngineCore pid=16967) ERROR 11-21 12:01:09 [core.py:1510] EngineCore failed to start.
RuntimeError: Engine core initialization failed. See root cause above.
"""
CUDA_NO_MEMORY = """\
(EngineCore pid=9) ERROR 11-21 12:01:09 [core.py:1510] torch.OutOfMemoryError: CUDA out of memory.
RuntimeError: Engine core initialization failed. See root cause above.
"""
SGLANG_NO_MEMORY = """\
[2025-11-12 10:03:52 TP0] Load weight end. type=Qwen3ForCausalLM, dtype=torch.bfloat16, avail mem=17.04 GB
[2025-11-12 10:03:53 TP0] Scheduler hit an exception: Traceback (most recent call last):
RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: self.server_args...
[2025-11-12 10:03:53] Received sigquit from a child process. It usually means the child failed.
"""
SGLANG_UNKNOWN_FLAG = "launch_server.py: error: unrecognized arguments: --no-such-flag\n"
TENSORRT_LLM_NO_MEMORY = """\
[11/12/2025-10:03:52] [TRT-LLM] [E] Executor worker initialization error: Traceback (most recent call last):
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.
RuntimeError: Executor worker returned error
"""
TENSORRT_LLM_UNKNOWN_FLAG = "Try 'trtllm-serve serve --help' for help.\n\nError: No such option: --no_such_flag\n"
VLLM_ASCEND_NO_MEMORY = """\
RuntimeError: NPU out of memory. Tried to allocate 52.00 MiB (NPU 0; 60.96 GiB total capacity; 59.36 GiB already
"""
MINDIE_NO_MEMORY = """\
[2025-11-25 17:23:11,888] [249] [281471718846752] [llm] [ERROR] [logging.py-348] : Warmup failed, because of \
multimodal model inference out of memory when `maxInputTokenLen` set to 8192.
"""
UNKNOWN = "0.00.1.1 I all is well\nSegmentation fault\n"


@pytest.mark.parametrize(
    ("engine", "log", "reason", "line"),
    [
        ("llama.cpp", LLAMA_CPP_NO_MEMORY, "out_of_memory", "ggml_aligned_malloc: insufficient memory (attempted"),
        ("llama.cpp", LLAMA_CPP_QUANTIZED, "unsupported_argument", "llama_init_from_model: quantized V cache requires"),
        ("vllm", VLLM_NO_MEMORY, "out_of_memory", "ValueError: Available memory on node 0 (8.09/9.71 GiB)"),
        ("vllm", CUDA_NO_MEMORY, "out_of_memory", "torch.OutOfMemoryError: CUDA out of memory."),
        ("sglang", SGLANG_NO_MEMORY, "out_of_memory", "RuntimeError: Not enough memory. Please try to increase"),
        ("sglang", SGLANG_UNKNOWN_FLAG, "unsupported_argument", "launch_server.py: error: unrecognized arguments"),
        ("tensorrt-llm", TENSORRT_LLM_NO_MEMORY, "out_of_memory", "torch.OutOfMemoryError: CUDA out of memory."),
        ("tensorrt-llm", TENSORRT_LLM_UNKNOWN_FLAG, "unsupported_argument", "Error: No such option: --no_such_flag"),
        ("vllm-ascend", VLLM_ASCEND_NO_MEMORY, "out_of_memory", "RuntimeError: NPU out of memory. Tried to allocate"),
        ("mindie", MINDIE_NO_MEMORY, "out_of_memory", "Warmup failed, because of multimodal model inference out of"),
        ("llama.cpp", UNKNOWN, None, "Segmentation fault"),
        ("vllm", "", None, None),
    ],
)
def test_log_tells_reason_and_line(engine, log, reason, line):
    why = ENGINES.get(engine).explain_failure(log.splitlines())
    assert why.reason == reason
    assert why.lines == [] if line is None else why.lines[0].startswith(line)


@pytest.mark.parametrize("engine", list(ENGINES), ids=lambda engine: engine.name)
def test_every_engine(engine):
    assert set(engine.options) <= set(OPTIONS)
    assert engine.model_formats
    assert set(engine.option_since) <= set(engine.options)


FLAGLESS = ("mindie", "endpoint")  # read a file instead, or already run; see test_mindie.py and test_endpoint.py


@pytest.mark.parametrize("name", [name for name in ENGINES.names() if name not in FLAGLESS])
def test_command_of_every_engine(name):
    engine = ENGINES.get(name)
    serve = Serve(
        Path("/python"), Path("/model"), "name", 1234, {"max_num_seqs": 3}, {"x": None, "--y": False, "z": 1.5}
    )
    command = engine.command(serve)
    assert command[0] == "/python"
    assert {"/model", "127.0.0.1", "1234", "3"} <= set(command)
    position = command.index("--x")
    assert command[position : position + 3] == ["--x", "--z", "1.5"]


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"max_num_seqs": "4"}, "`max_num_seqs` takes a whole number, not '4'"),
        ({"max_num_seqs": True}, "`max_num_seqs` takes a whole number, not True"),
        ({"max_num_seqs": 0}, "`max_num_seqs` takes a number above 0, not 0"),
        ({"enforce_eager": 1}, "`enforce_eager` takes true or false, not 1"),
        ({"max_num_sequences": 4}, "unknown option `max_num_sequences`; did you mean `max_num_seqs`"),
    ],
)
def test_wrong_options_are_refused(options, wrong):
    with pytest.raises(ConfigError, match=wrong.replace("(", r"\(")):
        ENGINES.get("vllm").check_options(options)


def test_context_length_is_for_each_slot():
    flags = ENGINES.get("llama.cpp").flags
    assert flags({"context_length": 1000, "max_num_seqs": 8}, {})[-2:] == ["--ctx-size", "8000"]
    assert flags({"context_length": 1000}, {}) == ["--ctx-size", "4000"]


def test_accelerators_that_would_stand_idle_are_refused():
    serve = Serve(Path("/python"), Path("/model"), "name", 1234, {}, {}, count=4)
    with pytest.raises(ConfigError, match="1 of 4 accelerators"):
        ENGINES.get("vllm").command(serve)
