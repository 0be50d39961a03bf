"""What the form of an extraction reply costs, and how much of it can be grounded. A script; it needs a language model.

    python -m tests.benchmarks.extraction_forms [--documents 20] [--forms numbers,quotes] [--out forms.jsonl]

Abstracts of HolisQA biology (below --data, RESIN_DATA or ../shared/data) are extracted with the configured model, one
form after the other, llm.max_concurrency documents at once, and all that comes back is grounded as the product does:

    numbers    the product: claim lines under the numbers of the sentences shown, one call a window
    two-calls  the product with indexing.single_call off: passages first, then the claims of each
    quotes     claim lines that each end with their sentence, copied, and are found in the text again by its words
    objects    as numbers, with a JSON object in the place of each line

--out keeps a line for each document as soon as it is done, and the same command goes on where it was stopped. Results
of another model, prompt or setting are neither reused nor counted. Seconds are the wall's: keep the machine quiet. The
product's grounding prefers the sentence a claim came with among equals, which favours "hint right". And no figure says
whether a claim is worth having: read some.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from resin_core.config import IndexingSection, LLMSection, load_config
from resin_core.errors import ConfigError, InputError, ResinError
from resin_core.indexing.extract import together
from resin_core.llm.protocol import ChatModel
from resin_core.records import Document
from tests.benchmarks.extraction_counts import Measured, key_of, measure, table
from tests.benchmarks.extraction_replies import FORMS

MIN_CHARS = 200
"""Shorter texts are no abstracts and are not drawn; --ids may name them."""


class Results:
    """Results in memory and, with a file, on disk: a line each, appended. A line that was cut off is passed over."""

    def __init__(self, file: Path | None = None) -> None:
        """Raises InputError when the file cannot be read or written."""
        self._file = file
        self.rows: list[Measured] = []
        if file is None:
            return
        try:
            text = file.read_text(encoding="utf-8") if file.exists() else ""
            self._append("\n" if text and not text.endswith("\n") else "")
        except OSError as error:
            raise InputError(f"--out {str(file)!r}: {error.strerror or error}; name a file in a folder") from None
        for line in filter(None, text.splitlines()):
            try:
                self.rows.append(Measured.model_validate_json(line))
            except ValidationError:
                print(f"{file}: a line that is no result is passed over: {line[:60]!r}", file=sys.stderr)

    def add(self, row: Measured) -> None:
        """Keeps a result."""
        self.rows.append(row)
        self._append(row.model_dump_json() + "\n")

    def of(self, name: str, documents: Sequence[Document], model: str, settings: IndexingSection) -> list[Measured]:
        """One result for each of these documents that has one in this form, with this model and these settings."""
        key, wanted = key_of(FORMS[name], model, settings), {document.doc_id for document in documents}
        rows = (row for row in self.rows if row.form == name and row.key == key and row.id in wanted)
        return list({row.id: row for row in rows}.values())

    def todo(self, name: str, documents: Sequence[Document], model: str, settings: IndexingSection) -> list[Document]:
        """The documents that have no result yet."""
        done = {row.id for row in self.of(name, documents, model, settings)}
        return [document for document in documents if document.doc_id not in done]

    def _append(self, text: str) -> None:
        if self._file is not None:
            with self._file.open("a", encoding="utf-8") as out:
                out.write(text)


async def run_forms(
    names: Sequence[str],
    documents: Sequence[Document],
    model: ChatModel,
    settings: IndexingSection,
    at_once: int,
    results: Results,
) -> None:
    """The forms one after the other, `at_once` documents at a time. Raises LLMError kinds; what is done is kept."""
    run = uuid.uuid4().hex[:12]
    gate = asyncio.Semaphore(at_once)

    async def one(name: str, document: Document) -> None:
        async with gate:
            done = await measure(name, FORMS[name], document, model, settings, run)
        results.add(done)
        note = f"{name}: {done.id}, {done.counts.units} units, {done.ended_s - done.began_s:.0f} s"
        print(note, file=sys.stderr, flush=True)

    for name in names:
        todo = results.todo(name, documents, model.model_name, settings)
        await together([one(name, document) for document in todo])


def chosen(corpus: Path, count: int, named: Sequence[str] | None = None) -> list[Document]:
    """The documents of those ids, or `count` drawn at random: always the same ones, and these first among more.

    Raises InputError for a corpus that is not there or has none to draw, and for an unknown id.
    """
    from resin_core.readers.read import read_source
    from resin_core.readers.rejects import ReadDocument
    from resin_core.readers.sources import SourceFile, list_sources

    found: dict[str, Document] = {}
    for file in list_sources([str(corpus)]):
        if isinstance(file, SourceFile):
            read = read_source(file, IndexingSection().max_document_bytes)
            found |= {one.document.doc_id: one.document for one in read if isinstance(one, ReadDocument)}
    if named is not None:
        if unknown := [one for one in named if one not in found]:
            raise InputError(f"{corpus} has no document {unknown[0]!r} ({len(unknown)} are unknown); correct --ids")
        return [found[one] for one in dict.fromkeys(named)]
    drawn = sorted(name for name, document in found.items() if len(document.text) >= MIN_CHARS)
    if not drawn:
        raise InputError(f"{corpus} has no document of {MIN_CHARS} characters or more; name others with --ids")
    random.Random(7).shuffle(drawn)
    return [found[name] for name in drawn[:count]]


def ids_in(file: Path) -> list[str]:
    """The JSON list of ids in a file. Raises InputError."""
    try:
        named = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"--ids {str(file)!r} cannot be read: {error}") from None
    if not isinstance(named, list) or not named or not all(isinstance(one, str) for one in named):
        raise InputError(f"--ids {str(file)!r} holds no JSON list of document ids")
    return named


def serve_and_run(
    names: Sequence[str], documents: Sequence[Document], llm: LLMSection, settings: IndexingSection, results: Results
) -> None:
    """`run_forms` with the configured model, for as long as that takes."""
    from resin_core.llm.build import open_chat_model
    from resin_core.models.host import ModelHost

    async def work(served: LLMSection, base_url: str) -> None:
        async with open_chat_model(served, base_url) as model:
            await run_forms(names, documents, model, settings, served.max_concurrency, results)

    with ModelHost(llm) as host:
        asyncio.run(work(host.settings, host.base_url))


def arguments_of(given: Sequence[str] | None) -> argparse.Namespace:
    """The command line's arguments."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    data = Path(os.environ.get("RESIN_DATA", "../shared/data"))
    parser.add_argument("--documents", type=int, default=20, help="how many abstracts are drawn")
    parser.add_argument("--ids", type=Path, help="a JSON list of the ids to take instead")
    parser.add_argument("--data", type=Path, default=data, help="the folder that holds holisqa/biology/corpus.jsonl")
    parser.add_argument("--forms", default=",".join(FORMS), help="which, with commas between; default: all")
    parser.add_argument("--out", type=Path, help="JSON lines, one a document and form; appended to and gone on from")
    parser.add_argument("--base-url", help="llm.base_url; default: as configured, else the embedded server")
    parser.add_argument("--model", help="llm.model")
    parser.add_argument("--config", type=Path, help="configuration file, as of resin")
    parser.add_argument("--set", action="append", default=[], help="one setting, as of resin; may be repeated")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    """Measure what is not measured yet and print the table; else the status of the error, as of resin."""
    arguments = arguments_of(given)
    own = {"llm.base_url": arguments.base_url, "llm.model": arguments.model}
    try:
        names = list(dict.fromkeys(name.strip() for name in arguments.forms.split(",")))
        if unknown := [name for name in names if name not in FORMS]:
            raise ConfigError(f"--forms: unknown form {unknown[0]!r}; there are: {', '.join(FORMS)}")
        if arguments.documents < 1:
            raise ConfigError(f"--documents is {arguments.documents}; it must be 1 or more")
        config = load_config(
            arguments.config, [*arguments.set, *(f"{key}={value}" for key, value in own.items() if value)]
        )
        corpus = arguments.data / "holisqa" / "biology" / "corpus.jsonl"
        documents = chosen(corpus, arguments.documents, ids_in(arguments.ids) if arguments.ids else None)
        settings, model, results = config.indexing, config.llm.model, Results(arguments.out)
        if any(results.todo(name, documents, model, settings) for name in names):
            serve_and_run(names, documents, config.llm, settings, results)
    except ResinError as error:
        print(f"extraction_forms: {error}", file=sys.stderr)
        return error.exit_code
    print(f"{model}, {config.llm.max_concurrency} at once, windows of up to {settings.window_sentences} sentences\n")
    print(table({name: results.of(name, documents, model, settings) for name in names}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
