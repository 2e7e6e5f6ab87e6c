"""Reads a GGUF file's metadata."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers.pre_tokenizers import PreTokenizer

from servelab.core.errors import ServelabError
from servelab.core.registry import nearest


class Tensor(NamedTuple):
    """A tensor of a GGUF file."""

    name: str
    dimensions: int
    """Those longer than 1."""
    elements: int
    size_bytes: int


_PART = re.compile(r"(?P<stem>.+)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})\.gguf")


def part_names(name: str) -> list[str]:
    """Names of all files of a GGUF model by its first, as llama.cpp splits it; `ServelabError` for a later part."""
    match = _PART.fullmatch(name)
    if match is None:
        return [name]
    count = int(match["count"])
    names = [f"{match['stem']}-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1)]
    if name != names[0]:
        raise ServelabError(f"{name}: is not the model's first part; name {names[0]}")
    return names


class Metadata:
    """Key-value pairs of a GGUF file, each decoded when it is read. `ServelabError` if the file cannot be read.

    A model in parts is named by its first file, which has the pairs; tensors are in all.
    """

    def __init__(self, path: Path) -> None:
        # Only who reads a file needs the library; scripts that know a model by its figures start without it.
        from gguf import GGUFReader

        names = part_names(path.name)
        try:
            self._readers = [GGUFReader(path.with_name(name)) for name in names]
        except (ValueError, IndexError, KeyError, OSError) as error:
            raise ServelabError(f"{path}: not a readable GGUF file: {error}") from None
        self.path = path

    def get(self, key: str, default: Any = None) -> Any:
        """The value, or the default if the file does not have the key."""
        field = self._readers[0].get_field(key)
        return default if field is None else field.contents()

    def tensors(self) -> list[Tensor]:
        """Its tensors, without their values."""
        return [
            Tensor(each.name, sum(size > 1 for size in each.shape), int(each.n_elements), int(each.n_bytes))
            for reader in self._readers
            for each in reader.tensors
        ]

    @property
    def parameters(self) -> int:
        """The number of values in all tensors."""
        return sum(tensor.elements for tensor in self.tensors())

    def need(self, key: str) -> Any:
        """The value; `ServelabError` if the file does not have the key."""
        value = self.get(key)
        if value is None:
            raise ServelabError(f"{self.path}: the GGUF metadata has no `{key}`")
        return value


NORMAL, CONTROL, USER_DEFINED = 1, 3, 4
"""Token types of the GGUF specification. The last two are parsed in text; control tokens are hidden from output."""
_SPACE = "\u2581"
"""Stands for a space in SentencePiece's pieces."""


def _split(pattern: str) -> Callable[[], PreTokenizer]:
    return lambda: pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


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
    "gpt-2": Splitting(lambda: pre_tokenizers.ByteLevel(add_prefix_space=False)),
    "smollm": Splitting(_digits_then_gpt2),
    "starcoder": Splitting(_digits_then_gpt2),
    "refact": Splitting(_digits_then_gpt2),
    "llama-bpe": Splitting(_split(_WORDS % "{1,3}"), ignore_merges=True),
    "qwen2": Splitting(_split(_WORDS % "")),
}
"""Splitting by `tokenizer.ggml.pre`; each equals the one of that name in llama.cpp's `llama-vocab.cpp`."""


def build_tokenizer(metadata: Metadata) -> Tokenizer:
    """The tokenizer of a GGUF file; `ServelabError` if its kind is not in `KINDS` or `SPLITTINGS`."""
    model = metadata.need("tokenizer.ggml.model")
    if model not in KINDS:
        known = " and ".join(f"`{kind}`" for kind in KINDS)
        raise ServelabError(f"{metadata.path}: tokenizer model `{model}` cannot be read, only {known}")
    tokens: list[str] = metadata.need("tokenizer.ggml.tokens")
    kinds: list[int] = metadata.need("tokenizer.ggml.token_type")
    build, adds_bos = KINDS[model]
    tokenizer = build(metadata, tokens, kinds)
    added = [
        AddedToken(token, special=kind == CONTROL, normalized=False)
        for token, kind in zip(tokens, kinds, strict=True)
        if kind in (CONTROL, USER_DEFINED)
    ]
    tokenizer.add_special_tokens([token for token in added if token.special])
    tokenizer.add_tokens([token for token in added if not token.special])
    if metadata.get("tokenizer.ggml.add_bos_token", adds_bos):
        bos_id = metadata.need("tokenizer.ggml.bos_token_id")
        bos = tokens[bos_id]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A $B", special_tokens=[(bos, bos_id)]
        )
    return tokenizer


def _byte_pairs(metadata: Metadata, tokens: list[str], kinds: list[int]) -> Tokenizer:
    name = metadata.get("tokenizer.ggml.pre", "gpt-2")
    if name not in SPLITTINGS:
        raise ServelabError(f"{metadata.path}: unsupported pre-tokenizer `{name}`{nearest(name, list(SPLITTINGS))}")
    splitting = SPLITTINGS[name]
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
    return tokenizer


def _sentencepiece(metadata: Metadata, tokens: list[str], kinds: list[int]) -> Tokenizer:
    """Pieces with scores: of neighbours in the text, those whose union has the highest score are joined first.

    What is in no piece becomes one token a byte.
    """
    ids = {token: index for index, token in enumerate(tokens)}
    scores = metadata.need("tokenizer.ggml.scores")
    pieces = {token for token, kind in zip(tokens, kinds, strict=True) if kind == NORMAL}
    merges = [
        (-scores[ids[piece]], ids[piece[:at]], ids[piece[at:]])
        for piece in pieces
        for at in range(1, len(piece))
        if piece[:at] in pieces and piece[at:] in pieces
    ]
    unknown = metadata.get("tokenizer.ggml.unknown_token_id")
    tokenizer = Tokenizer(
        models.BPE(
            vocab=ids,
            merges=[(tokens[left], tokens[right]) for _, left, right in sorted(merges)],
            unk_token=None if unknown is None else tokens[unknown],
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    space: list[normalizers.Normalizer] = [normalizers.Replace(" ", _SPACE)]
    decode: list[decoders.Decoder] = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if metadata.get("tokenizer.ggml.add_space_prefix", True):
        space.insert(0, normalizers.Prepend(_SPACE))
        decode.append(decoders.Strip(" ", 1, 0))
    tokenizer.normalizer = normalizers.Sequence(space)
    tokenizer.decoder = decoders.Sequence(decode)
    return tokenizer


Build = Callable[[Metadata, list[str], list[int]], Tokenizer]
KINDS: dict[str, tuple[Build, bool]] = {"gpt2": (_byte_pairs, False), "llama": (_sentencepiece, True)}
"""`tokenizer.ggml.model` → how to build it, and whether it begins texts with a token where the file does not say so."""


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
