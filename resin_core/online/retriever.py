"""The retriever port over one open index (RESIN section 3.5)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from resin_core.records import SourcePassage, UnitKind
from resin_core.store.reader import IndexReader
from resin_core.strategies.ports import Encoder, Retrieved


class IndexRetriever:
    """Embeds all queries in one batch, searches once, and resolves units to passages and sentences."""

    def __init__(self, reader: IndexReader, encoder: Encoder, min_score: float) -> None:
        reader.check_encoder(encoder.name, encoder.dimension)
        self._reader = reader
        self._encoder = encoder
        self._min_score = min_score

    @property
    def generation(self) -> str:
        """The generation that was opened."""
        return self._reader.generation

    async def search(self, queries: Sequence[str], kinds: Sequence[UnitKind], top_k: int) -> Retrieved:
        """Units per query, best first, none below the least score; runs beside the event loop."""
        return await asyncio.to_thread(self.search_now, queries, kinds, top_k)

    def search_now(self, queries: Sequence[str], kinds: Sequence[UnitKind], top_k: int) -> Retrieved:
        """As `search`, in the calling thread."""
        vectors = self._encoder.encode(queries)
        found = [
            tuple(candidate for candidate in row if candidate.score >= self._min_score)
            for row in self._reader.search(vectors, kinds, top_k)
        ]
        wanted = dict.fromkeys(candidate.unit.passage_id for row in found for candidate in row)
        passages = self._reader.passages(wanted)
        names = self._reader.source_names({passage.doc_id for passage in passages.values()})
        sentences = {doc_id: self._reader.sentences(doc_id) for doc_id in names}
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
