"""What vLLM makes of flags on a board, by its own EngineArgs: run by its environment's Python, prints JSON."""

import json
import sys
from types import SimpleNamespace

from vllm.engine import arg_utils
from vllm.usage.usage_lib import UsageContext
from vllm.utils.argparse_utils import FlexibleArgumentParser

HERE = arg_utils.current_platform
NAMES = {
    "max_num_batched_tokens": "max_num_batched_tokens",
    "max_num_seqs": "max_num_seqs",
    "gpu_memory_utilization": "memory_share",
    "kv_cache_dtype": "kv_cache_dtype",
    "enforce_eager": "enforce_eager",
    "stream_interval": "stream-interval",
    "performance_mode": "performance-mode",
}
"""Its attribute → Servelab's name."""


class StandIn:
    """A platform with another board."""

    def __init__(self, memory_gib, name, is_cpu):
        self.memory_gib, self.name, self._is_cpu = memory_gib, name, is_cpu

    def get_device_total_memory(self):
        return self.memory_gib * 2**30

    def get_device_name(self):
        return self.name

    def is_cpu(self):
        return self._is_cpu

    def is_tpu(self):
        return False

    def __getattr__(self, name):
        return getattr(HERE, name)


parser = arg_utils.EngineArgs.add_cli_args(FlexibleArgumentParser())
found = []
for memory_gib, name, is_cpu, context, flags in json.loads(sys.argv[1]):
    arg_utils.current_platform = StandIn(memory_gib or 0, name, is_cpu)
    arguments = arg_utils.EngineArgs.from_cli_args(parser.parse_args(flags))
    if arguments.enable_chunked_prefill is None:
        arguments.enable_chunked_prefill = True
    model = SimpleNamespace(max_model_len=arguments.max_model_len or context, is_multimodal_model=False)
    parallel = SimpleNamespace(use_batched_dp_moe=False)
    arguments._set_default_max_num_seqs_and_batched_tokens_args(UsageContext.OPENAI_API_SERVER, model, parallel)
    found.append({ours: getattr(arguments, theirs) for theirs, ours in NAMES.items()})
print(json.dumps(found))
