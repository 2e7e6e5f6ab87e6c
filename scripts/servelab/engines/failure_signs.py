"""Signs of failures that several engines share: patterns for lines of their logs, with reason, kind and remedy."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["result", "environment", "outage"]


@dataclass(frozen=True)
class Sign:
    """A pattern for lines of an engine's log that say why it failed."""

    reason: str
    pattern: re.Pattern[str]
    kind: Kind = "result"
    """`result`: the configuration's own; `environment`: this node or installation; `outage`: may be over at once."""
    fault: str = ""
    """An environment's fault in words."""
    remedy: str = ""
    weak: bool = False
    """Whether it may also follow from another process's failure; it then counts only where no other cause is found."""


def signs(reason: str, *patterns: str) -> list[Sign]:
    """Signs of one reason that is the configuration's own; upper and lower case are equal."""
    return [Sign(reason, re.compile(pattern, re.IGNORECASE)) for pattern in patterns]


def _fault(fault: str, remedy: str, pattern: str, reason: str = "environment", *, weak: bool = False) -> Sign:
    return Sign(reason, re.compile(pattern, re.IGNORECASE), "environment", fault, remedy, weak)


PORT_TAKEN = _fault(
    "the port is taken",
    "run again",
    r"address already in use|couldn't bind|failed to bind|socket bind failed|errno 98\b|port is occupied",
    "port",
)
HELD_BY_OTHERS = _fault(
    "other processes hold the device's memory",
    "end what uses the device (`nvidia-smi`, `npu-smi info`)",
    r"memory capacity is unbalanced|occupied by other processes|other processes sharing the same",
)
FAULTS = (
    PORT_TAKEN,
    HELD_BY_OTHERS,
    _fault(
        "a device has a hardware error",
        "take the node out of use; reset or replace the device",
        r"uncorrectable (ECC|NVLink)|ECC error|\bXid\b|fallen off the bus|GPU is lost|hardware error|row remap"
        r"|requires? (a )?reset|(aicore|device) .*(health|fault).*(abnormal|alarm)|ecc .*(error|uncorr)",
    ),
    _fault(
        "the devices are used by others, or in exclusive mode",
        "end what uses them, or set `nvidia-smi -c DEFAULT`",
        r"busy or unavailable|device(\(s\)|s)? (is|are)( already)? (busy|in use)|HCCP process|exclusive mode"
        r"|prohibited mode",
    ),
    _fault(
        "the driver does not fit the engine's CUDA or CANN",
        "update the driver, or use a release of the engine that fits it",
        r"driver .*too old|driver version is insufficient|Error 80[34]\b|unsupported display driver|driver is a stub"
        r"|forward compatibility was attempted|unsupported toolchain|driver/library version mismatch"
        r"|unsatisfied condition: cuda|driver .*not (compatible|match)|requires .*driver|driver_?version .*(low|old"
        r"|than)",
    ),
    _fault(
        "the GPUs' fabric is not ready",
        "start nvidia-fabricmanager of the driver's version",
        r"Error 802\b|system not yet initialized|fabric ?manager",
    ),
    _fault(
        "the engine sees no device",
        "check the driver (`nvidia-smi`, `npu-smi info`) and what the container is given",
        r"failed to initialize CUDA|no cuda gpus are available|no CUDA-capable device|found no nvidia driver"
        r"|no gpu devices found|cuda unknown error|failed to infer device type|failed to initialize nvml"
        r"|can't communicate with the nvidia driver|no (npu|ascend) device|error from cudaGetDeviceCount"
        r"|nvidia-container-cli|CUDA initialization( error|: .*error)|dcmi .*(fail|error)|not support device type"
        r"|no accelerator .*(found|available)|not compiled with cuda",
    ),
    _fault(
        "the engine has no kernels for this device",
        "use a release of the engine that is built for it",
        r"no kernel image|kernel image is invalid|invalid device function|is not defined for option 'gpu"
        r"|unsupported gpu arch|not compatible with the current PyTorch|\bsm_?\d+\w*\b is (not|un)|unknown gpu arch"
        r"|not compiled (for|with) .*\bsm_?\d|no (binary|kernels?) .*(gpu|sm_?\d)|soc ?version .*(not|un)support",
    ),
    _fault(
        "kernels cannot be built here: a compiler or ninja is missing, too old, or fails",
        "install the CUDA toolkit, ninja and gcc, and set CUDA_HOME; or install the engine's built kernels",
        r"could not find nvcc|nvcc\S* (was )?not found|nvcc: |nvcc fatal|NVCC (version|compil)|no such file.*\b(nvcc"
        r"|ninja|gcc|cc|g\+\+)\b|CUDA_HOME|cuda_home=|ninja build failed|ninja: build stopped|ninja is required"
        r"|ninja\S* not found|failed to find C compiler|(gcc|g\+\+|cc1plus)\b.*(not found|no such file)"
        r"|fatal error: \S+\.h|cannot find -l|Command '\['[^']*\b(gcc|g\+\+|cc|nvcc|ninja)'|libcuda\.so cannot found"
        r"|error building extension|unsupported GNU version|ptxas fatal|ptxas .*(not found|too old)"
        r"|errors? detected in the compilation|failed to (compile|build) .*(kernel|extension|cubin)|(nvrtc|jit) (error"
        r"|compilation failed)",
    ),
    _fault(
        "shared memory (/dev/shm) is too small",
        "enlarge it: `--shm-size=32g` or `--ipc=host` for a container",
        r"/dev/shm|shared memory segment|\bbus error\b|(insufficient|not enough) shared memory \(shm\)|shm_open|SIGBUS",  # noqa: S108 (looked for, not used)
    ),
    _fault(
        "a disk is full, or cannot be written",
        "free space in the folders for caches and temporary files (HOME, TMPDIR), or move them",
        r"no space left on device|errno 28\b|disk quota exceeded|errno 122\b|read-only file system|disk (is )?full"
        r"|PermissionError|permission denied|errno (13|30)\b|not enough (free )?disk",
    ),
    _fault(
        "a limit of the system is too low",
        "raise it (`ulimit -n`, `ulimit -u`, `ulimit -l`)",
        r"too many open files|can't start new thread|resource temporarily unavailable|thread creation failed"
        r"|pthread_create failed|RLIMIT_\w+|memlock",
    ),
    _fault(
        "MPI does not start here",
        "MPI and Slurm need the same PMI, and the job as many tasks as the engine has ranks",
        r"\bPMI\w*[ _](error|server)|\bPMI[x2]?\b.*(support|fail|error|not)|\bMPI_Init\w*|\bOPAL error|\bORTE(_ERROR"
        r"| was| has)|libmpi|not enough slots|\b(mpirun|prterun|orted)\b.*(fail|error|unable|not|detected)|\b(orte"
        r"|opal|pmix)_\w*init\b|failed: MPI error",
    ),
    _fault(
        "Ascend's CANN is not set up",
        "source set_env.sh of CANN and MindIE, and check that CANN, driver and engine fit together",
        r"GE ?Initialize failed|GELib::InnerInitialize|libascend\w*\.so|libhccl|set_env\.sh|ASCEND_\w+|libatb|libge_"
        r"|libruntime\.so|No module named '(torch_npu|acl|tb?e|atb_llm|mindie\w*)\b|OpCompileProcessor init"
        r"|\baclInit\b|rtGetDeviceCount|\bCANN\b.*(version|match|install)|drv ?err|opp .*(not|path)|aclrtSetDevice"
        r"|AclSetCompileopt|soc_version",
    ),
    _fault(
        "a proxy takes requests to this machine",
        "set no_proxy to 127.0.0.1,localhost",
        r"no_proxy lacks",
    ),
    _fault(
        "the model hub gives no access, or is offline",
        "set HF_TOKEN of an account with access, or fetch the files first and name their folder",
        r"gated ?repo|\b(401|403|429|50\d) (client|server) error|access to (this )?model .*restricted"
        r"|LocalEntryNotFound|outgoing traffic has been disabled|OfflineMode|offline mode|couldn't (connect to"
        r"|reach) '?https?://|(cannot|can't|unable to|failed to) (reach|connect to) '?https?://|huggingface\.co.*(time"
        r"|retr|resolv)|name resolution|RepositoryNotFound|must (be authenticated|have access)|LocalTokenNotFound"
        r"|max retries exceeded|is a gated|gated repo",
        "missing_model",
    ),
    _fault(
        "this release does not know the model's architecture",
        "use a newer release of the engine or of its libraries",
        r"unknown (model )?architecture|has no \w+ implementation|not recognize this architecture"
        r"|unknown (pre-?tokenizer|model) type|model architectures? .*(not supported|failed to be inspected)"
        r"|unsupported (model )?(architecture|model ?type)|(model( type)?|architecture)s? \S+ (is|are) not (supported"
        r"|implemented|registered|recogni[sz]ed|found in)|not a registered model|cannot find model module"
        r"|no model (class )?(registered|found) for|cannot (get|find) .*(router|model class) for"
        r"|no module named 'atb_llm\.models\.|tokenizer class \S+ does not exist|model type .* not support"
        r"|does not (exist|have) .*\w+For(CausalLM|ConditionalGeneration)",
    ),
    _fault(
        "the installed libraries do not fit together",
        "install the versions of the engine's lock again",
        r"undefined symbol|cannot open shared object file|symbol lookup error|version `\w+_[\d.]+' not found"
        r"|cannot import name|^[\w.]*(ImportError|ModuleNotFoundError|VersionConflict|DistributionNotFound)\b"
        r"|module '\S+' has no attribute|(Tokenizer|Config|Processor)\w*'?( object)? has no attribute"
        r"|is required for a normal functioning|no such operator|numpy\.\w+ size changed|compiled using numpy 1"
        r"|operator \S+ does not exist|_OpNamespace",
    ),
)
COLLECTIVES = _fault(
    "the devices cannot connect to each other",
    "check links, firewalls and the network interface (NCCL_SOCKET_IFNAME, HCCL_IF_IP)",
    r"\bNCCL (error|WARN)|nccl\w*Error|HCCL (function )?error|Hccl\w*.* fail|\bEI\d{4}\b|call hccl api"
    r"|DistBackendError|DistNetworkError|DistStoreError|Gloo .*fail|\bRDMA\b|\bIBV\b|ibv_|connectFullMesh"
    r"|client socket has|NVSHMEM|socket times? ?out|timed out .*(store|rendezvous|clients)|no route to host"
    r"|unable to find address for",
    weak=True,
)
COMMON = (
    *signs(
        "out_of_memory",
        r"(?<!avoid )out ?of ?memory|bad_alloc|insufficient memory|not enough memory|failed to allocate|(can't|cannot"
        r"|unable to) allocate .*(memory|buffer)|(malloc|alloc)\w* failed|no available memory for the cache"
        r"|larger than the available KV cache|less than (desired|requested) .*memory|(not enough|insufficient"
        r"|no) .*(kv ?cache|memory)|(kv cache|memory) .*(too small|exhausted|not enough)",
    ),
    _fault(
        "the model's files are missing or damaged",
        "fetch the model again",
        r"is not a local folder|repo id must be|can't (load|find) (the |a )?(config|tokenizer|image processor)"
        r"|invalid repository id|no such file or directory: .*(config|safetensors|model|tokenizer)|safetensor\w*error"
        r"|cannot find any model weights|failed to infer model format|header ?too ?large|MetadataIncompleteBuffer"
        r"|invalid ?header|file is not complete|model not found|failed to open (gguf|model)|failed to read key-value"
        r"|invalid magic|corrupted or incomplete|path not found|is not directory|modelWeightPath|JSONDecodeError"
        r"|failed to load model from",
        "missing_model",
    ),
    *signs(
        "unsupported_argument",
        r"error: (unrecognized|argument|ambiguous|invalid|no such option|option|missing)|validation errors? for"
        r"|invalid (value|choice|argument)|unexpected extra argument|extra inputs are not permitted"
        r"|invalid device ordinal|not divisible|must be (divisible|a multiple)|is not a multiple of"
        r"|larger than the (number|maximum|derived)|not valid for this configuration|must match|(does not"
        r"|doesn't) match|mismatch|minimum capability",
        r"\b((is|are) not supported|unsupported|does(n't| not) support|not supported|only supports?|only supported)\b"
        r"|(in|not )compatible with|cannot be used|trust_remote_code|greater than the (derived|max)"
        r"|is not (a )?valid\b|llama_init_from_model: .*requires|^NotImplementedError|^(AssertionError"
        r"|ValueError): .*(must|should|cannot|requires?|expected|invalid|exceed|too (large|long|small))\b",
    ),
)
KILLED = Sign(
    "crashed",
    re.compile(r"is dead\b|exit ?code:? -(9|15)\b|terminated by signal|died unexpectedly", re.IGNORECASE),
    "outage",
)
HANG = Sign(
    "never_healthy",
    re.compile(r"no available shared memory broadcast block|hang detected|waiting for .*engine proc", re.IGNORECASE),
)
