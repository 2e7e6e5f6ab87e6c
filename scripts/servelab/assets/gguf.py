"""Reads a GGUF file's metadata, and builds from it the tokenizer that llama.cpp uses for that file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from gguf import GGUFReader
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from tokenizers.pre_tokenizers import PreTokenizer

from servelab.core.errors import ServelabError
from servelab.core.registry import nearest

CONTROL, USER_DEFINED = 3, 4
"""Token types of the GGUF specification. Both are parsed in text; control tokens are hidden from output."""


class Tensor(NamedTuple):
    """A tensor of a GGUF file."""

    name: str
    dimensions: int
    """Those longer than 1."""
    elements: int
    size_bytes: int


class Metadata:
    """Key-value pairs of a GGUF file, each decoded when it is read. `ServelabError` if the file cannot be read."""

    def __init__(self, path: Path) -> None:
        try:
            self._reader = GGUFReader(path)
        except (ValueError, IndexError, KeyError, OSError) as error:
            raise ServelabError(f"{path}: not a readable GGUF file: {error}") from None
        self.path = path

    def get(self, key: str, default: Any = None) -> Any:
        """The value, or the default if the file does not have the key."""
        field = self._reader.get_field(key)
        return default if field is None else field.contents()

    def tensors(self) -> list[Tensor]:
        """Its tensors, without their values."""
        return [
            Tensor(each.name, sum(size > 1 for size in each.shape), int(each.n_elements), int(each.n_bytes))
            for each in self._reader.tensors
        ]

    @property
    def parameters(self) -> int:
        """The number of values in all tensors."""
        return sum(int(tensor.n_elements) for tensor in self._reader.tensors)

    def need(self, key: str) -> Any:
        """The value; `ServelabError` if the file does not have the key."""
        value = self.get(key)
        if value is None:
            raise ServelabError(f"{self.path}: the GGUF metadata has no `{key}`")
        return value


def _split(pattern: str) -> Callable[[], PreTokenizer]:
    return lambda: pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _gpt2() -> PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False)


def _digits_then_gpt2() -> PreTokenizer:
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )


@dataclass(frozen=True)
class Splitting:
    """How text is split before byte-pair merges."""

    pre_tokenizer: Callable[[], PreTokenizer]
    ignore_merges: bool = False
    """A piece that is itself a token is used whole, without merges."""


_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPLITTINGS = {
    "gpt-2": Splitting(_gpt2),
    "smollm": Splitting(_digits_then_gpt2),
    "starcoder": Splitting(_digits_then_gpt2),
    "refact": Splitting(_digits_then_gpt2),
    "llama-bpe": Splitting(_split(_WORDS % "{1,3}"), ignore_merges=True),
    "qwen2": Splitting(_split(_WORDS % "")),
}
"""Splitting by `tokenizer.ggml.pre`; each equals the one of that name in llama.cpp's `llama-vocab.cpp`."""


def build_tokenizer(metadata: Metadata) -> Tokenizer:
    """The byte-pair tokenizer of a GGUF file; `ServelabError` if its kind is not in `SPLITTINGS`."""
    model = metadata.need("tokenizer.ggml.model")
    if model != "gpt2":
        raise ServelabError(
            f"{metadata.path}: tokenizer model `{model}` is not supported, only `gpt2` (byte-pair encoding); "
            "serve the model from its Hugging Face repository, which has a tokenizer.json"
        )
    name = metadata.get("tokenizer.ggml.pre", "gpt-2")
    if name not in SPLITTINGS:
        raise ServelabError(f"{metadata.path}: unsupported pre-tokenizer `{name}`{nearest(name, list(SPLITTINGS))}")
    splitting = SPLITTINGS[name]
    tokens: list[str] = metadata.need("tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ", 1)) for merge in metadata.need("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(
        models.BPE(
            vocab={token: index for index, token in enumerate(tokens)},
            merges=merges,
            ignore_merges=splitting.ignore_merges,
        )
    )
    tokenizer.pre_tokenizer = splitting.pre_tokenizer()
    tokenizer.decoder = decoders.ByteLevel()
    kinds = metadata.need("tokenizer.ggml.token_type")
    added = [
        AddedToken(token, special=kind == CONTROL, normalized=False)
        for token, kind in zip(tokens, kinds, strict=True)
        if kind in (CONTROL, USER_DEFINED)
    ]
    tokenizer.add_special_tokens([token for token in added if token.special])
    tokenizer.add_tokens([token for token in added if not token.special])
    if metadata.get("tokenizer.ggml.add_bos_token", False):
        bos_id = metadata.need("tokenizer.ggml.bos_token_id")
        bos = tokens[bos_id]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A $B", special_tokens=[(bos, bos_id)]
        )
    return tokenizer


def tokenizer_config(metadata: Metadata) -> dict[str, Any]:
    """`tokenizer_config.json` for the tokenizer: its special tokens by role, and the chat template."""
    tokens = metadata.need("tokenizer.ggml.tokens")
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": metadata.get("tokenizer.ggml.add_bos_token", False),
        "clean_up_tokenization_spaces": False,
        "model_max_length": metadata.need(f"{metadata.need('general.architecture')}.context_length"),
    }
    for role, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        token_id = metadata.get(f"tokenizer.ggml.{key}_token_id")
        if token_id is not None:
            config[f"{role}_token"] = tokens[token_id]
    template = metadata.get("tokenizer.chat_template")
    if template is not None:
        config["chat_template"] = template
    return config
