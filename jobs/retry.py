"""Rejected documents once more: from the index itself what it holds, from their files what could not be read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from jobs import rows
from jobs.index import Job, run_on
from jobs.sources import Listed
from jobs.work import WorkFolder
from resin_core.config import ResinConfig
from resin_core.errors import InputError
from resin_core.indexing.keys import document_key
from resin_core.indexing.report import IndexReport, Progress
from resin_core.indexing.retrying import is_retried
from resin_core.readers.rejects import ROW_SUFFIX, ReadDocument
from resin_core.store import schema
from resin_core.store.filesystem import IndexFolder
from resin_core.store.manifest import Manifest, read_manifest
from resin_core.store.parts import read_part

_ROW = re.compile(ROW_SUFFIX)


def run(
    reasons: Sequence[str], index: str, config: ResinConfig, progress: Progress, env: Mapping[str, str] | None = None
) -> IndexReport:
    """One run over the documents behind rejects of these reasons; none given: of all that another try may mend.

    Raises InputError when there are none.
    """
    folder = IndexFolder.at(index)
    manifest = read_manifest(folder)
    rejects = _selected(folder, manifest, reasons)
    documents = pc.unique(rejects.filter(pc.not_equal(rejects.column("stage"), "read")).column("doc_id")).to_pylist()
    uris = pc.unique(rejects.filter(pc.equal(rejects.column("stage"), "read")).column("uri")).to_pylist()
    unread = list(dict.fromkeys(_ROW.sub("", uri) for uri in uris))
    files = [uri for uri in unread if Path(uri).is_file()]
    if not documents and not files:
        which = f" of the reasons {', '.join(reasons)}" if reasons else ""
        raise InputError(
            f"the index at {folder} has no rejects{which} that could be tried again; `resin rejects list` shows all"
        )
    listed = Listed.again(_places(rejects, files)) if files else None

    def read(job: Job) -> list[str]:
        import ray

        job.forced = documents
        paths: list[str] = ray.get(ray.remote(_stage).remote(folder, manifest, job.work, documents))
        job.counts["read"] += len(documents)
        return sorted([*paths, *(job.read(listed) if listed is not None else [])])

    return run_on(read, index, config, progress, env)


def _selected(folder: IndexFolder, manifest: Manifest, reasons: Sequence[str]) -> pa.Table:
    empty = schema.SCHEMAS["rejects"].empty_table()
    table = pa.concat_tables([empty, *(read_part(folder, entry) for entry in manifest.entries("rejects"))])
    keep = [
        reason in reasons if reasons else is_retried(stage)
        for stage, reason in zip(table.column("stage").to_pylist(), table.column("reason").to_pylist(), strict=True)
    ]
    return table.filter(pa.array(keep, pa.bool_()))


def _places(rejects: pa.Table, files: Sequence[str]) -> dict[str, str]:
    """Each file and the document id it was read under; rows of one file carry more than the file's own id."""
    pairs = zip(rejects.column("uri").to_pylist(), rejects.column("doc_id").to_pylist(), strict=True)
    known: dict[str, str] = {}
    for place, doc_id in pairs:
        uri = _ROW.sub("", place)
        if uri in files and (uri not in known or len(doc_id) < len(known[uri])):
            known[uri] = doc_id
    return known


def _stage(folder: IndexFolder, manifest: Manifest, work: WorkFolder, doc_ids: Sequence[str]) -> list[str]:
    """Documents as the index holds them, part by part."""
    wanted = pa.array(doc_ids, pa.large_string())
    paths = []
    for entry in manifest.entries("documents"):
        table = read_part(folder, entry)
        table = table.filter(pc.is_in(table.column("doc_id"), value_set=wanted))
        found = [document.model_copy(update={"extraction": ""}) for document in schema.records_of("documents", table)]
        if found:
            read = [ReadDocument(document=document, place=document.uri) for document in found]
            paths.append(work.stage(entry.path, rows.staged(read, [document_key(document) for document in found])))
    return paths
