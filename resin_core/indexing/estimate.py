"""What an indexing run will take, before it is paid for: from a sample of the documents, some of them extracted.

Documents are counted, not sampled; calls and prompt tokens are those of the sample's own prompts; output tokens and
time are measured on the few documents that the model reads, whose replies are kept for the run itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from pydantic import Field

from resin_core.config import ResinConfig
from resin_core.errors import SourceError
from resin_core.indexing.document import index_document
from resin_core.indexing.keys import document_key
from resin_core.llm.budget import cost_of
from resin_core.llm.build import open_chat_model
from resin_core.llm.context import count_tokens_estimate
from resin_core.llm.kept import KeptModel
from resin_core.llm.pending import NotYetError, PendingModel
from resin_core.llm.protocol import Request
from resin_core.readers.read import read_source
from resin_core.readers.rejects import ReadDocument
from resin_core.readers.sources import SourceFile, SourceKind, list_sources
from resin_core.records import Document, Record, Usage
from resin_core.store.replies import ReplyFolder

_FILES = 64
_OUTPUT_RATIO = 0.9
"""Output tokens a source token of the default model (docs/extraction.md), where none is measured."""
_CHUNK = 1 << 20


class IndexEstimate(Record):
    """An estimate. `seconds` and `measured` are None where no document was read by the model."""

    documents: int
    sampled: int
    unchanged_share: float = Field(description="Share of the sample that the index holds already.")
    llm_calls: int
    prompt_tokens: int
    completion_tokens: int
    seconds: float | None
    cost: float
    measured: Usage | None = Field(description="What the documents read by the model used; their replies are kept.")


class _Sampled(NamedTuple):
    document: Document
    requests: list[Request]


def estimate(
    sources: Sequence[str],
    config: ResinConfig,
    known: frozenset[str],
    documents: int,
    base_url: Callable[[], str] | None = None,
    replies: ReplyFolder | None = None,
    read: int = 0,
) -> IndexEstimate:
    """Counts the sources, samples up to `documents` of them, and has `read` of these extracted at `base_url`.

    `known` are content keys that the index holds under the same extraction key. Raises SourceError for sources without
    a document, LLMError kinds from the calls.
    """
    files = [item for item in list_sources(sources) if isinstance(item, SourceFile)]
    total = sum(_documents_in(file) for file in files)
    sample = list(_sample(files, documents, config.indexing.max_document_bytes))
    if not sample:
        raise SourceError("the sources hold no document that could be read; nothing can be estimated")
    new = [document for document in sample if document_key(document) not in known]
    asked = [_Sampled(document, asyncio.run(_requests(document, config))) for document in new]
    scale = total / len(sample)
    calls = round(scale * sum(len(one.requests) for one in asked))
    prompt = round(scale * sum(_prompt_tokens(request) for one in asked for request in one.requests))
    source = scale * sum(count_tokens_estimate(one.document.text) for one in asked)
    output, seconds, measured = round(_OUTPUT_RATIO * source), None, None
    chosen = [one for one in asked if one.requests][:read]
    if chosen and base_url is not None and replies is not None:
        measured, took_s = asyncio.run(_extract([one.document for one in chosen], config, base_url(), replies))
        shown = sum(count_tokens_estimate(one.document.text) for one in chosen)
        guessed = sum(_prompt_tokens(request) for one in chosen for request in one.requests)
        if measured.llm_calls:
            output = round(source * measured.completion_tokens / max(1, shown))
            prompt = round(prompt * measured.prompt_tokens / max(1, guessed))
            calls = round(calls * measured.llm_calls / sum(len(one.requests) for one in chosen))
            at_once = min(measured.llm_calls, config.llm.max_concurrency)
            seconds = round(took_s / measured.llm_calls * calls * at_once / config.llm.max_concurrency, 1)
    return IndexEstimate(
        documents=total,
        sampled=len(sample),
        unchanged_share=round(1 - len(new) / len(sample), 3),
        llm_calls=calls,
        prompt_tokens=prompt,
        completion_tokens=output,
        seconds=seconds,
        cost=round(cost_of(Usage(prompt_tokens=prompt, completion_tokens=output), config.llm), 4),
        measured=measured,
    )


async def _requests(document: Document, config: ResinConfig) -> list[Request]:
    """The calls that a document begins with, made by the very code that will make them."""
    pending = PendingModel(config.llm.model, config.llm.seed, {})
    with contextlib.suppress(NotYetError):
        await index_document(document, pending, config.indexing)
    return list(pending.open.values())


async def _extract(
    documents: Sequence[Document], config: ResinConfig, base_url: str, replies: ReplyFolder
) -> tuple[Usage, float]:
    started = time.monotonic()
    async with open_chat_model(config.llm, base_url) as model:
        kept = [KeptModel(model, replies.of(document.doc_id), config.llm.seed) for document in documents]
        work = [index_document(one, by, config.indexing) for one, by in zip(documents, kept, strict=True)]
        await asyncio.gather(*work)
        return model.usage, time.monotonic() - started


def _prompt_tokens(request: Request) -> int:
    return sum(count_tokens_estimate(message.content) for message in request.messages)


def _documents_in(file: SourceFile) -> int:
    """Rows of a JSONL or Parquet file, without reading them; one for others. A file that cannot be read has none."""
    try:
        if file.kind is SourceKind.PARQUET:
            import pyarrow.parquet as pq

            return int(pq.read_metadata(file.path).num_rows)
        if file.kind is SourceKind.JSONL:
            with open(file.path, "rb") as stream:  # noqa: PTH123 - as the path was given
                last, lines = b"\n", 0
                while chunk := stream.read(_CHUNK):
                    lines, last = lines + chunk.count(b"\n"), chunk[-1:]
                return lines + (last != b"\n")
    except (OSError, ValueError):
        return 0
    return 1


def _sample(files: Sequence[SourceFile], documents: int, max_bytes: int) -> Iterable[Document]:
    """Documents of files drawn at random, always the same ones; of a file with many rows the first."""
    drawn = random.Random(7).sample(list(files), min(len(files), _FILES, documents))  # noqa: S311 - a sample
    each = -(-documents // max(1, len(drawn)))
    for file in drawn:
        found = (item.document for item in read_source(file, max_bytes) if isinstance(item, ReadDocument))
        yield from islice(found, each)
