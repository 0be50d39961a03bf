"""Every form that is asked for compiles in xgrammar, vLLM's grammar engine: one that does not fails each call."""

from __future__ import annotations

import json
from typing import Any

import pytest
from transformers import AutoTokenizer

from resin_core.prompts import plan, select, solve
from tests.vllm.weights import folder

SCHEMAS: dict[str, dict[str, Any]] = {"plan": plan.schema(4), "select": select.schema(7), "solve": solve.schema(10)}


@pytest.fixture(scope="module")
def compiler() -> Any:
    xgrammar = pytest.importorskip("xgrammar")
    return xgrammar.GrammarCompiler(xgrammar.TokenizerInfo.from_huggingface(AutoTokenizer.from_pretrained(folder())))


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_form_compiles(compiler: Any, name: str) -> None:
    compiler.compile_json_schema(json.dumps(SCHEMAS[name]))
