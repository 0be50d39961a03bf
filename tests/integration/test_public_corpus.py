"""Reading and splitting real abstracts: nothing lost, nothing twice."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from resin_core.readers.read import read_source
from resin_core.readers.rejects import ReadDocument
from resin_core.readers.sources import SourceFile, list_sources
from resin_core.text.sentences import sentence_spans

CORPUS = Path(os.environ.get("RESIN_DATA", "../shared/data")) / "holisqa" / "biology" / "corpus.jsonl"

pytestmark = pytest.mark.data


@pytest.mark.skipif(not CORPUS.exists(), reason=f"needs the public benchmark folder: {CORPUS} (set RESIN_DATA)")
def test_every_abstract_is_read_and_split_whole() -> None:
    (file,) = [source for source in list_sources([str(CORPUS)]) if isinstance(source, SourceFile)]
    read = [item for item in read_source(file, 64_000_000) if isinstance(item, ReadDocument)]
    assert len(read) > 1000
    assert len({item.document.doc_id for item in read}) == len(read)
    for item in read:
        text = item.document.text
        inside = [False] * len(text)
        for start, end in sentence_spans(text):
            assert not any(inside[start:end])
            inside[start:end] = [True] * (end - start)
        assert all(covered or character.isspace() for covered, character in zip(inside, text, strict=True))
