"""The retriever port over one open index (RESIN section 3.5)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from resin_core.llm.protocol import Deadline
from resin_core.records import SourcePassage, UnitKind
from resin_core.store.reader import IndexReader
from resin_core.strategies.ports import Encoder, Retrieved, Vectors


class IndexRetriever:
    """Searches one generation by vectors, and resolves units to passages and sentences. Safe for many threads."""

    def __init__(self, reader: IndexReader, min_score: float) -> None:
        """`reader` was checked against the encoder whose vectors come."""
        self.reader = reader
        self._min_score = min_score

    def resolve(self, vectors: Vectors, kinds: Sequence[UnitKind], top_k: int) -> Retrieved:
        """Units per vector, best first, none below the least score, with their passages."""
        found = [
            tuple(candidate for candidate in row if candidate.score >= self._min_score)
            for row in self.reader.search(vectors, kinds, top_k)
        ]
        wanted = dict.fromkeys(candidate.unit.passage_id for row in found for candidate in row)
        passages = self.reader.passages(wanted)
        names = self.reader.source_names({passage.doc_id for passage in passages.values()})
        sentences = {doc_id: self.reader.sentences(doc_id) for doc_id in names}
        sources = {}
        for passage_id, passage in passages.items():
            name = names[passage.doc_id]
            inside = set(passage.sentence_ids)
            sources[passage_id] = SourcePassage(
                passage=passage,
                title=name.title,
                uri=name.uri,
                sentences=tuple(s for s in sentences[passage.doc_id] if s.sentence_id in inside),
            )
        return Retrieved(candidates=tuple(found), passages=sources)


class EncodingRetriever:
    """The retriever port in one process: embeds all queries in one batch and searches once."""

    def __init__(self, reader: IndexReader, encoder: Encoder, min_score: float) -> None:
        reader.check_encoder(encoder.name, encoder.dimension)
        self._index = IndexRetriever(reader, min_score)
        self._encoder = encoder

    @property
    def generation(self) -> str:
        """The generation that was opened."""
        return self._index.reader.generation

    async def search(
        self, queries: Sequence[str], kinds: Sequence[UnitKind], top_k: int, deadline: Deadline
    ) -> Retrieved:
        """As the port says; runs beside the event loop."""
        deadline.remaining_s()
        return await asyncio.to_thread(self.search_now, queries, kinds, top_k)

    def search_now(self, queries: Sequence[str], kinds: Sequence[UnitKind], top_k: int) -> Retrieved:
        """As `search`, in the calling thread."""
        return self._index.resolve(self._encoder.encode(queries), kinds, top_k)
