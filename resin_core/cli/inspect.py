"""`resin inspect`: what is in an index, down to one record and its place in the source."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from resin_core.cli import show
from resin_core.cli.options import ConfigOption, DebugOption, IndexOption, JsonOption, SetOption, configured, index_of
from resin_core.errors import ConfigError, UnknownIdError
from resin_core.records import Document, Passage, ReasoningUnit, Record, Reject

if TYPE_CHECKING:
    from resin_core.store.reader import IndexReader

_CONTEXT_CHARS = 240
_SENTENCE = re.compile(r"(.+)#s(\d+)", re.DOTALL)


class Found(NamedTuple):
    """A record, what it is called, and its span in its document's text, if it has one."""

    kind: str
    record: Record
    doc_id: str = ""
    char_start: int = 0
    char_end: int = 0


def inspect(
    identifier: Annotated[
        str | None, typer.Argument(metavar="ID", help="Of a document, passage, unit, sentence or reject.")
    ] = None,
    index: IndexOption = None,
    documents: Annotated[bool, typer.Option("--documents", help="List all documents.")] = False,
    passages: Annotated[bool, typer.Option("--passages", help="List all passages.")] = False,
    units: Annotated[bool, typer.Option("--units", help="List all units.")] = False,
    rejects: Annotated[bool, typer.Option("--rejects", help="List all that was not indexed, with reasons.")] = False,
    json: JsonOption = False,
    config: ConfigOption = None,
    settings: SetOption = None,
    debug: DebugOption = False,
) -> None:
    """Show what an index holds: a summary, one record in its source, or all records of a kind."""
    flags = {"documents": documents, "passages": passages, "units": units, "rejects": rejects}
    wanted = [name for name, given in flags.items() if given]
    if len(wanted) > 1 or (wanted and identifier is not None):
        asked = [f"--{name}" for name in wanted] + ([f"ID {identifier!r}"] if identifier is not None else [])
        raise ConfigError(f"give one of an ID and the listing flags, not {' and '.join(asked)}")
    place = index_of(configured(config, settings, debug), index)
    from resin_core.store.reader import IndexReader

    reader = IndexReader.open(place)
    if wanted:
        _list(_all(reader, wanted[0]), json)
    elif identifier is None:
        _summary(reader, json)
    else:
        found = find(reader, identifier)
        if json:
            show.json_line(found.record.model_dump(mode="json"))
        else:
            _record(reader, found)


def find(reader: IndexReader, identifier: str) -> Found:
    """Whatever has that id: unit, passage, document, sentence or reject. Raises UnknownIdError."""
    for look in (_unit, _passage, _document, _sentence):
        try:
            found = look(reader, identifier)
        except UnknownIdError:
            continue
        if found is not None:
            return found
    for reject in reader.iter_rejects():
        if reject.reject_id == identifier:
            return Found("reject", reject)
    raise UnknownIdError(
        f"nothing in the index at {reader.folder} has the id {identifier!r}; "
        "list ids with --documents, --passages, --units or --rejects"
    )


def _unit(reader: IndexReader, identifier: str) -> Found:
    unit = reader.unit(identifier)
    return Found("unit", unit, unit.doc_id, unit.char_start, unit.char_end)


def _passage(reader: IndexReader, identifier: str) -> Found:
    passage = reader.passage(identifier)
    return Found("passage", passage, passage.doc_id, passage.char_start, passage.char_end)


def _document(reader: IndexReader, identifier: str) -> Found:
    return Found("document", reader.document(identifier))


def _sentence(reader: IndexReader, identifier: str) -> Found | None:
    match = _SENTENCE.fullmatch(identifier)
    for sentence in reader.sentences(match[1]) if match else ():
        if sentence.sentence_id == identifier and match is not None:
            return Found("sentence", sentence, match[1], sentence.char_start, sentence.char_end)
    return None


def _all(reader: IndexReader, name: str) -> Iterator[Record]:
    listings = {
        "documents": reader.iter_documents,
        "passages": reader.iter_passages,
        "units": reader.iter_units,
        "rejects": reader.iter_rejects,
    }
    records: Iterator[Record] = listings[name]()
    return records


def _list(records: Iterator[Record], json: bool) -> None:
    for record in records:
        if json:
            show.json_line(record.model_dump(mode="json"))
        else:
            show.line("  ".join(show.one_line(cell, 200) for cell in _cells(record)))


def _cells(record: Record) -> tuple[str, ...]:
    match record:
        case Document():
            return record.doc_id, f"{len(record.text):,} chars", record.title
        case Passage():
            about = "; ".join(part for part in (record.main_entity, record.semantic_focus) if part)
            return record.passage_id, record.doc_id, show.short(record.sentence_ids), about or record.text
        case ReasoningUnit():
            return (
                record.unit_id,
                record.kind.value,
                record.doc_id,
                show.short(record.sentence_ids),
                record.retrieval_text,
            )
        case Reject():
            return record.reject_id, f"{record.stage}:{record.reason}", record.doc_id, record.detail
    return (repr(record),)


def _summary(reader: IndexReader, json: bool) -> None:
    manifest = reader.manifest
    if json:
        show.json_line({"generation": manifest.generation, **manifest.model_dump(mode="json", exclude={"files"})})
        return
    stamp = manifest.stamp
    show.rows(
        [
            ("index", str(reader.folder)),
            ("generation", manifest.generation),
            ("made", manifest.created_at),
            *((name, f"{count:,}") for name, count in manifest.counts.items()),
            ("units by kind", show.counts(manifest.units_by_kind)),
            ("encoder", f"{stamp.encoder} ({stamp.dimension} dimensions)"),
            ("language models", ", ".join(stamp.models)),
            ("prompts", ", ".join(f"{name} {version}" for name, version in stamp.prompts.items())),
            ("made by", f"resin {stamp.resin_version}"),
        ]
    )


def _record(reader: IndexReader, found: Found) -> None:
    values: dict[str, Any] = found.record.model_dump(mode="json")
    body = values.pop("text", None) if found.kind in ("document", "passage") else None
    rows = [("is a", found.kind)]
    rows += [(name, _value(value)) for name, value in values.items() if value not in ("", [], {}, None)]
    show.rows(rows)
    if found.doc_id:
        document = reader.document(found.doc_id)
        show.line(f"\nin its source: {show.one_line(document.title)} ({show.one_line(document.uri)})")
        _in_context(document.text, found.char_start, found.char_end)
    elif body:
        show.line()
        show.line(show.plain(body))


def _value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    if isinstance(value, dict):
        return ", ".join(f"{key}: {item}" for key, item in value.items())
    return str(value)


def _in_context(text: str, start: int, end: int) -> None:
    """The span between some text before and after; marked by style on a terminal and by brackets elsewhere."""
    before, after = text[max(0, start - _CONTEXT_CHARS) : start], text[end : end + _CONTEXT_CHARS]
    cut_before = "…" if start > _CONTEXT_CHARS else ""
    cut_after = "…" if end + _CONTEXT_CHARS < len(text) else ""
    show.line(f"{cut_before}{show.plain(before)}{show.marked(text[start:end])}{show.plain(after)}{cut_after}")
