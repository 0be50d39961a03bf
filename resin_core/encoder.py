"""The text encoder: sentences to unit vectors, with a SentenceTransformer model (RESIN appendix A.5).

The packaged model needs no network. This module knows nothing of indexes; it says by which name and fingerprint an
index should be stamped.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from resin_core.config.sections import EncoderSection
from resin_core.errors import EncoderError, ModelNotFoundError
from resin_core.models.registry import encoder_folder
from resin_core.strategies.ports import Vectors

_DEVICE = re.compile(r"cpu|cuda(:\d+)?")
_CHUNK_TEXTS = 16_384
"""Texts handed to the model at once: bounds what a GPU holds, and is large enough for sorting by length to pay."""

_BLOCK = 1 << 20
# What decides the vectors: weights, tokenizer, pooling, length. Files that only libraries rewrite are left out.
_FINGERPRINTED = ("*.safetensors", "pytorch_model*.bin", "tokenizer.json", "vocab.txt", "modules.json")
_FINGERPRINTED_BELOW = ("sentence_bert_config.json", "[0-9]*_*/config.json", "[0-9]*_*/*.safetensors", "[0-9]*_*/*.bin")


def shape_of(settings: EncoderSection) -> tuple[str, int] | None:
    """Name and dimension of the encoder as its files say them, without loading it; None when they do not say.

    Only of the packaged model on a CPU: there is nothing that loading it could find wrong.
    """
    source, kind = _source(settings.model)
    if kind != "package" or settings.device != "cpu":
        return None
    try:
        pooling = json.loads((Path(source) / "1_Pooling" / "config.json").read_text(encoding="utf-8"))
        return settings.model, int(pooling["word_embedding_dimension"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


class SentenceEncoder:
    """The real `Encoder`. Safe to share between threads: calls take turns, each uses all of torch's threads.

    `settings.model` is a packaged name (all-MiniLM-L6-v2), a folder, or a hub name. Loading takes seconds.
    Raises EncoderError when the model or the device cannot be had.
    """

    def __init__(self, settings: EncoderSection) -> None:
        self._settings = settings
        self._device = _checked_device(settings.device)
        self._source, self._kind = _source(settings.model)
        # The tokenizer of one model cannot be used from two threads at once.
        self._lock = threading.Lock()
        self._model = _load(settings.model, self._source, self._kind, self._device)
        self._dimension = self._measure()

    @property
    def name(self) -> str:
        """The configured name; for a folder its last part and its fingerprint, wherever the folder lies."""
        if self._kind == "folder":
            return f"{Path(self._source).name}@{self.fingerprint}"
        return self._settings.model

    @cached_property
    def fingerprint(self) -> str:
        """Twelve hex digits over weights, tokenizer, pooling and length: the same for the same model in any place."""
        folder = Path(self._source) if self._kind != "hub" else _hub_folder(self._source)
        files = {file for pattern in (*_FINGERPRINTED, *_FINGERPRINTED_BELOW) for file in folder.glob(pattern)}
        if not files:
            raise EncoderError(f"encoder.model {self._settings.model!r}: no weights in {folder}")
        digest = hashlib.sha256()
        for file in sorted(files, key=lambda file: file.relative_to(folder).as_posix()):
            digest.update(file.relative_to(folder).as_posix().encode() + b"\x1f")
            with file.open("rb") as stream:
                while block := stream.read(_BLOCK):
                    digest.update(block)
            digest.update(b"\x1f")
        return digest.hexdigest()[:12]

    @property
    def dimension(self) -> int:
        """Length of each vector."""
        return self._dimension

    def encode(self, texts: Sequence[str]) -> Vectors:
        """float32 (n, d), L2-normalised rows, in the order given; no texts give (0, d).

        Texts are batched by length. A text longer than the model reads (256 tokens for the packaged one) counts by its
        beginning. Raises EncoderError when a vector is not finite, or zero.
        """
        if isinstance(texts, str):
            raise EncoderError("encode takes a sequence of texts; one text goes in a list")
        result = np.empty((len(texts), self._dimension), dtype=np.float32)
        for start in range(0, len(texts), _CHUNK_TEXTS):
            chunk = [_encodable(text) for text in texts[start : start + _CHUNK_TEXTS]]
            result[start : start + len(chunk)] = self._unit_rows(self._raw(chunk), texts[start : start + len(chunk)])
        return result

    def _raw(self, texts: list[str]) -> Vectors:
        import torch

        reduced = self._settings.precision == "bf16"
        kind = torch.device(self._device).type
        try:
            with self._lock, torch.autocast(kind, dtype=torch.bfloat16) if reduced else nullcontext():
                # The model sorts by length itself; one tensor, moved and widened once, is cheaper than a row at a time.
                vectors = self._model.encode(
                    texts, batch_size=self._settings.batch_size, convert_to_tensor=True, show_progress_bar=False
                )
        except RuntimeError as error:  # out of memory, a lost device
            raise EncoderError(
                f"encoding {len(texts)} texts on {self._device} failed: {' '.join(str(error).split())[:300]}; "
                f"lower encoder.batch_size (now {self._settings.batch_size}) if memory ran out"
            ) from error
        return np.asarray(vectors.float().cpu().numpy(), dtype=np.float32)

    def _unit_rows(self, vectors: Vectors, texts: Sequence[str]) -> Vectors:
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        # Not `lengths <= 0`: this way NaN counts as unusable too.
        bad = np.flatnonzero(~((lengths[:, 0] > 0) & np.isfinite(lengths[:, 0])))
        if len(bad):
            raise EncoderError(
                f"encoder {self._settings.model!r} gave an unusable vector for {len(bad)} of {len(texts)} texts, "
                f"first {texts[bad[0]][:80]!r}; check the model, or set encoder.precision to fp32"
            )
        return np.asarray(vectors / lengths, dtype=np.float32)

    def _measure(self) -> int:
        return int(self._raw(["a"]).shape[1])


def _checked_device(device: str) -> str:
    if not _DEVICE.fullmatch(device):
        raise EncoderError(f"encoder.device {device!r}: expected cpu, cuda or cuda:N")
    if device != "cpu":
        import torch

        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if int(device.partition(":")[2] or 0) >= count:
            raise EncoderError(
                f"encoder.device {device!r}: this process sees {count} CUDA devices; "
                "set encoder.device to cpu, or install a torch built for CUDA"
            )
    return device


def _source(model: str) -> tuple[str, str]:
    """Where the model is loaded from, and whether that is a package, a folder or a hub."""
    try:
        packaged = encoder_folder(model)
    except ModelNotFoundError as error:
        raise EncoderError(str(error)) from None
    if packaged:
        return str(packaged), "package"
    folder = Path(model).expanduser()
    if folder.is_dir():
        return str(folder.resolve()), "folder"
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", model) or model.startswith((".", "~")):
        raise EncoderError(f"encoder.model {model!r}: no such folder")
    return model, "hub"


def _load(model: str, source: str, kind: str, device: str) -> Any:
    from sentence_transformers import SentenceTransformer
    from transformers.utils import logging

    bars: Any = logging
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()  # the command line has its own
    try:
        return SentenceTransformer(source, device=device, local_files_only=kind != "hub", trust_remote_code=False)
    except Exception as error:  # the library raises many kinds, some of them from its own dependencies
        hint = "give a folder or a packaged name where no hub can be reached" if kind == "hub" else "check that folder"
        raise EncoderError(
            f"encoder.model {model!r} cannot be loaded from {source}: {type(error).__name__}: "
            f"{' '.join(str(error).split())[:300]}; {hint}"
        ) from error
    finally:
        if shown:
            bars.enable_progress_bar()


def _hub_folder(name: str) -> Path:
    """Folder of the snapshot that was loaded; asks nobody."""
    from huggingface_hub import snapshot_download

    full = name if "/" in name else f"sentence-transformers/{name}"
    return Path(snapshot_download(full, local_files_only=True))


def _encodable(text: str) -> str:
    """The text with lone surrogates replaced: tokenizers take valid Unicode only."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode("utf-8")
    return text
