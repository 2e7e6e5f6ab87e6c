"""Converters of models, by name and version.

Both are part of a run's identity: raise a version when the result changes. They stand apart from their code, so that
planning does not load the libraries that convert.
"""

GGUF_QUANTIZER = "gguf-quantize 1"
GGUF_TO_SAFETENSORS = "gguf-to-safetensors 1"

CONVERTERS = {("gguf", "safetensors"): GGUF_TO_SAFETENSORS}
"""(format read, format written) → converter."""
