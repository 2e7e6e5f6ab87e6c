"""The JSON files beside what is fetched and made: `model.json`, `dataset.json` and `workload.json`."""

from __future__ import annotations

from pydantic import Field

from servelab.assets.model_work import ModelWork
from servelab.core.json_file import JsonFile
from servelab.core.run_spec import ModelFormat, ModelSource, WorkloadSpec


class StoredModel(JsonFile):
    """`model.json`: a model's files. Paths are relative to it, or absolute if the model is elsewhere."""

    path: str = Field(description="File or folder with the weights, to give the engine.")
    format: ModelFormat = Field(description="Format of the weights.")
    tokenizer: str = Field(description="The tokenizer.json that counts this model's tokens.")
    source: ModelSource = Field(description="Where the weights came from.")
    conversion: str | None = Field(None, description="Converter and its version; null if they are served as fetched.")
    work: ModelWork | None = Field(
        None, description="What a token needs at least; null for a kind of model that is not known here."
    )


class StoredDataset(JsonFile):
    """`dataset.json`: the file of records beside it."""

    name: str = Field(description="Name in `config/datasets.yaml`.")
    title: str = Field(description="Name for reports.")
    path: str = Field(description="The file, relative to this one.")
    part_of: str | None = Field(description="Dataset whose first bytes the file is; null for a whole one.")
    records: int = Field(description="Complete records in the file.")
    license: str = Field(description="Licence, as its authors state it.")
    source: str = Field(description="Where this copy came from, or `kept` if it was there already.")
    size_bytes: int = Field(description="Size of the file.")
    sha256: str = Field(description="sha256 of the file.")


class StoredWorkload(JsonFile):
    """`workload.json`: the requests beside it."""

    workload_id: str = Field(description="Workload: the name of its folder, a hash of its specification.")
    spec: WorkloadSpec = Field(description="Kind, parameters, tokenizer, and the generator's version.")
    requests: int = Field(description="Requests of the measured phase.")
    input_tokens: int = Field(description="Their input tokens, counted by the model's tokenizer.")
    output_tokens: int = Field(description="Output tokens that they ask for.")
    requests_sha256: str = Field(description="sha256 of `requests.parquet`.")
