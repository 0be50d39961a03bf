from __future__ import annotations

from collections.abc import Callable

import pytest

from resin_core.ids import content_hash
from resin_core.indexing.document import Indexed
from resin_core.records import Document, Reject, Usage
from tests.evidence import candidate, source

ODD = ("A NUL \x00 stands here.", 'Braces {0}, "quotes" and \U0001f600\u200d.', "Line\r\nends\u2028and \ufffd.")


def make_indexed(doc_id: str, *sentences: str, units: int = 0, rejects: int = 0, **more: str) -> Indexed:
    """A document with its tables; its passage begins at character 7, as `tests.evidence.source` has it."""
    of = source(doc_id, *(sentences or ODD))
    text = more.pop("text", "Title\n\n" + of.passage.text)
    document = Document(
        doc_id=doc_id,
        title=more.pop("title", f"Title of {doc_id}"),
        text=text,
        uri=f"file:///{doc_id}",
        metadata=more,
        content_hash=content_hash(text),
    )
    return Indexed(
        document,
        of.sentences,
        passages=[of.passage],
        units=[candidate(of, number).unit for number in range(1, units + 1)],
        rejects=[
            Reject(
                reject_id=f"r-{doc_id}-{number}", doc_id=doc_id, uri=document.uri, stage="ground",
                reason="not-in-source", detail="d", raw='{"\x00',
            )
            for number in range(rejects)
        ],
        usage=Usage(llm_calls=2, prompt_tokens=30, completion_tokens=7),
    )  # fmt: skip


@pytest.fixture
def indexed() -> Callable[..., Indexed]:
    return make_indexed
