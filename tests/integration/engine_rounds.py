"""Passes over documents with what is stored so far, and scripted engines that answer many requests at once.

Ray's workers import this module by its name, as they could not a test file.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray

from jobs import vllm_rows
from resin_core.config import ResinConfig
from resin_core.errors import StoreError
from resin_core.indexing.document import Indexed, index_document
from resin_core.llm.pending import NotYetError, PendingModel
from resin_core.llm.protocol import Request
from resin_core.records import Document
from resin_core.store.filesystem import IndexFolder
from resin_core.store.replies import DocumentReplies, ReplyFolder
from tests.scripted_llm.indexing_replies import play

Rows = list[dict[str, str]]


def replies_at(place: Path) -> ReplyFolder:
    """The ledger of an index at that place."""
    return ReplyFolder(IndexFolder.at(place), "test")


def one_pass(documents: Sequence[Document], config: ResinConfig, replies: ReplyFolder) -> tuple[list[Indexed], Rows]:
    """The documents that are done, and the requests that the others still ask, as rows for an engine."""
    done: list[Indexed] = []
    rows: Rows = []
    for document in documents:
        model = PendingModel(config.llm.model, config.llm.seed, replies.of(document.doc_id).all())
        try:
            done.append(asyncio.run(index_document(document, model, config.indexing)))
        except NotYetError:
            rows += [row(document.doc_id, key, request) for key, request in model.open.items()]
    return done, rows


def row(doc_id: str, key: str, request: Request) -> dict[str, str]:
    """One request as the engine takes it."""
    return {"doc_id": doc_id, "key": key, "request": request.model_dump_json()}


def dataset(rows: Rows) -> Any:
    """A Ray Dataset of them."""
    return ray.data.from_items(rows)


class FullReplies(ReplyFolder):
    """A ledger that takes nothing."""

    def of(self, doc_id: str) -> DocumentReplies:
        raise StoreError(f"cannot write for {doc_id}: the disk is full")


def answer(row: dict[str, Any], broken: str = "") -> dict[str, Any]:
    """An output row as the processor gives it: a failed one has other columns than the others."""
    request = Request.model_validate_json(row["request"])
    if broken and broken in request.messages[-1].content:
        return {"doc_id": row["doc_id"], "key": row["key"], "prompt": "x", vllm_rows.ERROR: "ValueError: no grammar"}
    schema = {"json_schema": {"schema": request.json_schema}}
    action: Any = play({**request.model_dump(mode="json"), "response_format": schema})
    result = {**row, "max_tokens": request.max_tokens, "generated_text": action.text, "num_input_tokens": 30,
              "num_generated_tokens": 5, "time_taken_llm": 0.1}  # fmt: skip
    return {**vllm_rows.output_row(result), vllm_rows.ERROR: ""}


def scripted(requests: Any, broken: str = "") -> Any:
    """An engine that answers in any order but the one it was asked in."""
    blocks = requests.random_shuffle(seed=3).repartition(target_num_rows_per_block=4)
    return blocks.map(functools.partial(answer, broken=broken), num_cpus=0.5)


def silent(requests: Any) -> Any:
    def wait(row: dict[str, Any]) -> dict[str, Any]:
        time.sleep(60)
        return row

    return requests.map(wait, num_cpus=0.1)
