"""What the form of an extraction reply costs, and how much of it can be grounded. A script; it needs a language model.

    python -m tests.benchmarks.extraction_forms [--documents 20] [--forms numbers,quotes] [--out forms.jsonl]

Abstracts of HolisQA biology (in --data, RESIN_DATA or ../shared/data) are extracted with the configured model, a form
after the other, llm.max_concurrency documents at once, and everything that comes back is grounded as the product does:

    numbers    the product: claim lines under the numbers of the sentences shown, one call a window
    two-calls  the product with indexing.single_call off: passages first, then the claims of each
    quotes     claim lines that each end with their sentence, copied; found in the text again by its words
    objects    as numbers, with a JSON object in the place of each line

--out keeps a line for each document as soon as it is done; the same command goes on where it was stopped. What was
made with another model, prompt or setting is neither reused nor counted. Seconds are of the whole machine: keep it quiet.
No figure here says whether a claim is true or useful: read some (`resin inspect --units`) before choosing by numbers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError
from rapidfuzz import fuzz

from resin_core import ids
from resin_core.config import IndexingSection, LLMSection, load_config
from resin_core.errors import ConfigError, ContextLengthError, InputError, ResinError
from resin_core.indexing import document as product
from resin_core.indexing import extract
from resin_core.indexing.claims import parse_claim
from resin_core.indexing.extract import Extracted, Failure
from resin_core.indexing.grounding import Grounding, ground
from resin_core.indexing.matching import missing, source
from resin_core.indexing.normalise import build_unit, merge_duplicates
from resin_core.indexing.passages import build_passages
from resin_core.indexing.words import content, tokens
from resin_core.llm.context import count_tokens_estimate
from resin_core.llm.protocol import ChatModel
from resin_core.prompts import extraction as wire
from resin_core.prompts import index_document, passages, units
from resin_core.prompts.base import Prompt, WireReply, fields, shown
from resin_core.records import Document, Record, Sentence
from resin_core.text.sentences import split_sentences

Line = wire.Line
Ask = Callable[[ChatModel, str, Sequence[Line], IndexingSection], Awaitable[Extracted]]

MIN_QUOTE_RATIO = 90.0
MIN_CHARS = 200
"""Shorter texts are no abstracts and are not drawn; --ids may name them."""
_KEYS = ("kind", "subject", "property", "value", "limits")


class Form(NamedTuple):
    """One way of asking, and the prompts it sends."""

    ask: Ask
    prompts: tuple[Prompt, ...]


class Measured(Record):
    """One document in one form. `key` is of model, settings and prompts; times are seconds since the epoch."""

    form: str
    id: str
    key: str
    run: str
    began_s: float
    ended_s: float
    llm_calls: int
    prompt_tokens: int
    output_tokens: int
    source_tokens: int
    source_words: int
    sentences: int
    covered: int
    claims: int
    parsed: int
    grounded: int
    hint_right: int
    units: int
    exact: int
    failures: dict[str, int]


# The two other forms, with the product's own rules and examples


def _by_sentence(text: str) -> dict[str, str]:
    rows = (row.partition("] ") for row in text.splitlines() if row.startswith("["))
    return {number.lstrip("["): sentence for number, _, sentence in rows}


def quoted(text: str, claims: Mapping[str, Sequence[str]]) -> list[str]:
    """Claim lines under sentence numbers as one list of lines that end with their sentence."""
    sentences = _by_sentence(text)
    return [f"{claim} | {sentences[number]}" for number, rows in claims.items() for claim in rows]


def as_object(claim: str) -> dict[str, str]:
    """A claim line as an object."""
    return dict(zip(_KEYS, fields(claim), strict=False))


def _objects(claims: Mapping[str, Sequence[str]]) -> dict[str, list[dict[str, str]]]:
    return {number: [as_object(claim) for claim in rows] for number, rows in claims.items()}


def _example(text: str, claims: object, spans: Sequence[str]) -> tuple[str, str]:
    return text, wire.compact({"units": claims, "passages": spans})


QUOTES = Prompt(
    name="quotes",
    system=index_document.PROMPT.system + '\nHere "units" is one list for all sentences, and each claim line ends '
    'with " | " and the sentence that states it, copied word for word.',
    examples=(
        _example(wire.PUMP, quoted(wire.PUMP, wire.PUMP_UNITS), wire.PUMP_PASSAGES),
        _example(wire.BARLEY, quoted(wire.BARLEY, wire.BARLEY_UNITS), wire.BARLEY_PASSAGES),
    ),
)
OBJECTS = Prompt(
    name="objects",
    system=index_document.PROMPT.system + '\nHere each claim is no line but a JSON object with the keys "kind", '
    '"subject", "property", "value" and, where the sentence limits the claim, "limits".',
    examples=(
        _example(wire.PUMP, _objects(wire.PUMP_UNITS), wire.PUMP_PASSAGES),
        _example(wire.BARLEY, _objects(wire.BARLEY_UNITS), wire.BARLEY_PASSAGES),
    ),
)


class QuotesReply(WireReply):
    """Claim lines with quotes, and passage lines."""

    units: list[str]
    passages: list[str] = []


class ObjectsReply(WireReply):
    """Claim objects by sentence number, and passage lines. What an object lacks shows when its line is parsed."""

    units: dict[str, list[dict[str, str]]]
    passages: list[str] = []


def schema(form: str, lines: Sequence[Line], per_sentence: int) -> dict[str, Any]:
    """The product's schema with `units` in another form."""
    whole = index_document.schema(lines, per_sentence)
    if form == "quotes":
        most = per_sentence * sum(not line.heading for line in lines)
        claims: dict[str, Any] = {"type": "array", "minItems": 1, "maxItems": most, "items": {"type": "string"}}
    else:
        item = {
            "type": "object",
            "properties": {key: {"type": "string"} for key in _KEYS},
            "required": list(_KEYS[:4]),
            "additionalProperties": False,
        }
        rows = {"type": "array", "minItems": 1, "maxItems": per_sentence, "items": item}
        claims = whole["properties"]["units"] | {
            "properties": dict.fromkeys(whole["properties"]["units"]["required"], rows)
        }
    return whole | {"properties": whole["properties"] | {"units": claims}}


async def with_numbers(model: ChatModel, title: str, lines: Sequence[Line], settings: IndexingSection) -> Extracted:
    """The product's one call."""
    return await extract.extract_window(model, title, lines, settings.model_copy(update={"single_call": True}))


async def with_two_calls(model: ChatModel, title: str, lines: Sequence[Line], settings: IndexingSection) -> Extracted:
    """The product's two calls."""
    return await extract.extract_window(model, title, lines, settings.model_copy(update={"single_call": False}))


async def with_quotes(model: ChatModel, title: str, lines: Sequence[Line], settings: IndexingSection) -> Extracted:
    """Claims with quotes; the sentence number of each is that of the sentence found by its quote."""
    found = Extracted()
    if all(line.heading for line in lines):
        return found
    most, cap = settings.max_units_per_sentence, extract._cap(lines, settings)
    cap += most * sum(count_tokens_estimate(line.text) for line in lines if not line.heading)
    shape = schema("quotes", lines, most)
    text, tries = wire.render(title, lines), settings.repair_attempts
    reply = await extract._ask(model, found, QUOTES, text, shape, QuotesReply, cap, tries)
    if reply is None:
        return found
    found.spans = wire.spans(reply.passages)
    texts = [(line.number, shown(line.text)) for line in lines]
    for row in reply.units:
        *claim, quote = fields(row)
        # With a part less the last one is the value: it would be found, and the claim be without it.
        number = find_quote(quote, texts) if len(claim) >= 4 else None
        if number is None:
            found.failures.append(Failure("align", "quote-not-found", quote, row))
        else:
            found.claims.append((number, " | ".join(claim)))
    return found


async def with_objects(model: ChatModel, title: str, lines: Sequence[Line], settings: IndexingSection) -> Extracted:
    """Claims as objects, made into lines for the product's parser."""
    found = Extracted()
    if all(line.heading for line in lines):
        return found
    most, cap = settings.max_units_per_sentence, extract._cap(lines, settings)
    cap += most * len(lines) * count_tokens_estimate(wire.compact(dict.fromkeys(_KEYS, "")))
    shape = schema("objects", lines, most)
    text, tries = wire.render(title, lines), settings.repair_attempts
    reply = await extract._ask(model, found, OBJECTS, text, shape, ObjectsReply, cap, tries)
    if reply is not None:
        found.spans = wire.spans(reply.passages)
        found.claims = wire.claims({key: [as_line(one) for one in rows] for key, rows in reply.units.items()})
    return found


def as_line(claim: Mapping[str, str]) -> str:
    """A claim object as the product's claim line."""
    return " | ".join(claim.get(key, "").replace("|", "/") for key in _KEYS).removesuffix(" | ")


def find_quote(quote: str, sentences: Sequence[tuple[int, str]]) -> int | None:
    """Number of the sentence that holds the middle of the quote: where it stands exactly, else nearly; None: nowhere."""
    quote = shown(quote).strip("\"“”'… ")
    if not any(map(str.isalnum, quote)):
        return None
    joined = " ".join(text for _, text in sentences)
    at = joined.find(quote)
    middle = at + len(quote) // 2
    if at < 0:
        nearest = fuzz.partial_ratio_alignment(quote, joined, score_cutoff=MIN_QUOTE_RATIO)
        if nearest is None:
            return None
        middle = (nearest.dest_start + nearest.dest_end) // 2
    end = 0
    for number, text in sentences:
        end += len(text) + 1
        if middle < end:
            return number
    return sentences[-1][0]


FORMS: dict[str, Form] = {
    "numbers": Form(with_numbers, (index_document.PROMPT,)),
    "two-calls": Form(with_two_calls, (passages.PROMPT, units.PROMPT)),
    "quotes": Form(with_quotes, (QUOTES,)),
    "objects": Form(with_objects, (OBJECTS,)),
}


# Measuring


async def extracted(
    ask: Ask, model: ChatModel, document: Document, window: list[Sentence], settings: IndexingSection
) -> Extracted:
    """One window, in halves when it does not fit the model's context, as the product does it."""
    lines = product._lines(document.text, window)
    try:
        return await ask(model, document.title, lines, settings)
    except ContextLengthError as error:
        if len(window) == 1:
            return Extracted(failures=[Failure("extract", "context-length", str(error), lines[0].text)])
    half = len(window) // 2
    both = Extracted()
    for part in (window[:half], window[half:]):
        got = await extracted(ask, model, document, part, settings)
        both.spans += got.spans
        both.claims += got.claims
        both.failures += got.failures
        both.usage += got.usage
        both.repaired = both.repaired or got.repaired
    return both


async def measure(
    name: str, form: Form, document: Document, model: ChatModel, settings: IndexingSection, run: str
) -> Measured:
    """One document in one form. Raises LLMError kinds when the endpoint is down."""
    began_s = time.time()
    sentences = split_sentences(document.doc_id, document.text, settings.max_sentence_chars)
    windows = product._windows(sentences, settings)
    got = await extract.together([extracted(form.ask, model, document, window, settings) for window in windows])
    ended_s = time.time()
    return Measured(
        form=name,
        id=document.doc_id,
        key=key_of(form, model.model_name, settings),
        run=run,
        began_s=began_s,
        ended_s=ended_s,
        llm_calls=sum(one.usage.llm_calls for one in got),
        prompt_tokens=sum(one.usage.prompt_tokens for one in got),
        output_tokens=sum(one.usage.completion_tokens for one in got),
        source_tokens=count_tokens_estimate(document.text),
        source_words=len(document.text.split()),
        sentences=sum(not line.heading for line in product._lines(document.text, sentences)),
        **judged(document, sentences, list(zip(windows, got, strict=True)), settings),
    )


def judged(
    document: Document,
    sentences: Sequence[Sentence],
    got: Sequence[tuple[list[Sentence], Extracted]],
    settings: IndexingSection,
) -> dict[str, Any]:
    """Counts of claims on their way to units, through the product's own parser, grounding and merging.

    `exact` counts units whose predicate, value and limits name nothing, and no number, that the cited span lacks as it
    stands: short forms and names in the place of a pronoun, which grounding allows, count against it.
    """
    spans = [span for window, one in got for span in product._spans(document, window, one, settings)]
    passage_of = {}
    for span, passage in zip(sorted(spans), build_passages(document, sentences, spans), strict=True):
        passage_of.update(dict.fromkeys(range(span.first, span.last + 1), passage))
    by_number = {sentence.number: sentence for sentence in sentences}
    starts = {span.first for span in spans}
    counts, failures = Counter[str](), Counter[str]()
    made = []
    for window, one in got:
        failures.update(f"{failure.stage}:{failure.reason}" for failure in one.failures)
        counts["claims"] += len(one.claims) + sum(failure.stage == "align" for failure in one.failures)
        texts = [(s.number, shown(document.text[s.char_start : s.char_end])) for s in window]
        context = " ".join([shown(document.title), *(text for _, text in texts)])
        for hint, raw in one.claims:
            claim = parse_claim(raw)
            if claim is None:
                failures["parse:bad-claim"] += 1
                continue
            counts["parsed"] += 1
            result = ground(claim, texts, hint, context, starts)
            if not isinstance(result, Grounding):
                failures[f"ground:{result.reason}"] += 1
                continue
            counts["grounded"] += 1
            counts["hint_right"] += result.start_sentence <= hint <= result.end_sentence
            passage = passage_of[result.start_sentence]
            made.append(build_unit(claim, result, passage, by_number, document.text, one.repaired))
    kept = merge_duplicates(made, document.text)
    for unit in kept:
        words = [token for part in (unit.predicate, unit.object, unit.scope) for token in content(tokens(part))]
        counts["exact"] += not missing(words, source(unit.evidence_quote))
    named = {name: counts[name] for name in ("claims", "parsed", "grounded", "hint_right", "exact")}
    covered = {sentence_id for unit in kept for sentence_id in unit.sentence_ids}
    return {**named, "units": len(kept), "covered": len(covered), "failures": dict(sorted(failures.items()))}


def key_of(form: Form, model: str, settings: IndexingSection) -> str:
    """Of all that a result depends on beside the document."""
    return ids.digest((model, settings.model_dump_json(), *(prompt.id for prompt in form.prompts)), 16)


async def run_forms(
    names: Sequence[str],
    documents: Sequence[Document],
    model: ChatModel,
    settings: IndexingSection,
    at_once: int,
    results: Results,
) -> None:
    """The forms one after the other, `at_once` documents of each at a time; every one is kept as soon as it is done."""
    run = uuid.uuid4().hex[:12]
    for name in names:
        form, gate = FORMS[name], asyncio.Semaphore(at_once)
        todo = results.todo(name, documents, model.model_name, settings)

        async def one(document: Document, name: str = name, form: Form = form, gate: asyncio.Semaphore = gate) -> None:
            async with gate:
                done = await measure(name, form, document, model, settings, run)
            results.add(done)
            seconds = done.ended_s - done.began_s
            print(f"{name}: {done.id}, {done.units} units, {seconds:.0f} s", file=sys.stderr, flush=True)

        await extract.together([one(document) for document in todo])


class Results:
    """Rows in memory and, with a file, on disk: a line each, appended. A line that was cut off is passed over."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self.rows: list[Measured] = []
        text = file.read_text(encoding="utf-8") if file is not None and file.exists() else ""
        for line in text.splitlines():
            try:
                self.rows.append(Measured.model_validate_json(line))
            except ValidationError:
                print(f"{file}: a line that is no result is passed over: {line[:60]!r}", file=sys.stderr)
        if file is not None:
            with file.open("a", encoding="utf-8") as out:
                out.write("\n" if text and not text.endswith("\n") else "")

    def add(self, row: Measured) -> None:
        """Keeps a result."""
        self.rows.append(row)
        if self._file is not None:
            with self._file.open("a", encoding="utf-8") as out:
                out.write(row.model_dump_json() + "\n")

    def of(self, name: str, documents: Sequence[Document], model: str, settings: IndexingSection) -> list[Measured]:
        """The results of these documents in that form, made with this model and these settings; one each."""
        key, wanted = key_of(FORMS[name], model, settings), {document.doc_id for document in documents}
        return list(
            {row.id: row for row in self.rows if (row.form, row.key) == (name, key) and row.id in wanted}.values()
        )

    def todo(self, name: str, documents: Sequence[Document], model: str, settings: IndexingSection) -> list[Document]:
        """The documents that have no result yet."""
        done = {row.id for row in self.of(name, documents, model, settings)}
        return [document for document in documents if document.doc_id not in done]


# The table


def wall_s(rows: Sequence[Measured]) -> float:
    """Seconds from the first start to the last end, summed over runs: documents that went side by side count once."""
    runs: dict[str, list[Measured]] = {}
    for row in rows:
        runs.setdefault(row.run, []).append(row)
    return sum(max(row.ended_s for row in run) - min(row.began_s for row in run) for run in runs.values())


def columns(rows: Sequence[Measured]) -> dict[str, str]:
    """The figures of one form."""

    def total(name: str) -> int:
        return sum(getattr(row, name) for row in rows)

    def per(name: str, of: str) -> str:
        return f"{total(name) / total(of):.2f}" if total(of) else "-"

    def share(name: str, of: str) -> str:
        return f"{total(name) / total(of):.1%}" if total(of) else "-"

    return {
        "documents": f"{len(rows):,}",
        "LLM calls": f"{total('llm_calls'):,}",
        "prompt tokens": f"{total('prompt_tokens'):,}",
        "output tokens": f"{total('output_tokens'):,}",
        "output tokens per source token (estimated)": per("output_tokens", "source_tokens"),
        "output tokens per source word": per("output_tokens", "source_words"),
        "seconds per document": f"{wall_s(rows) / len(rows):.1f}" if rows else "-",
        "claims": f"{total('claims'):,}",
        "parsed": f"{total('parsed'):,} ({share('parsed', 'claims')})",
        "grounded": f"{total('grounded'):,} ({share('grounded', 'claims')})",
        "hint right, of grounded": share("hint_right", "grounded"),
        "units": f"{total('units'):,}",
        "exact, of units": share("exact", "units"),
        "sentences covered": share("covered", "sentences"),
        "output tokens per unit": per("output_tokens", "units"),
    }


def table(by_form: Mapping[str, Sequence[Measured]]) -> str:
    """A row a figure and a column a form; below it what failed, by reason."""
    made = {name: columns(rows) for name, rows in by_form.items()}
    failures = {name: sum((Counter(row.failures) for row in rows), Counter[str]()) for name, rows in by_form.items()}
    reasons = sorted(set().union(*failures.values()))
    body = [("", list(made)), *((name, [one[name] for one in made.values()]) for name in columns(()))]
    body += [(reason, [f"{one[reason]:,}" for one in failures.values()]) for reason in reasons]
    first = max(len(name) for name, _ in body)
    width = max(len(cell) for _, cells in body for cell in cells)
    return "\n".join(f"{name:<{first}}" + "".join(f"  {cell:>{width}}" for cell in cells) for name, cells in body)


# Documents and command line


def chosen(corpus: Path, count: int, named: Sequence[str] | None = None) -> list[Document]:
    """The documents of those ids, or `count` drawn at random, always the same, and among more of them again.

    Raises InputError for a missing corpus or an unknown id.
    """
    from resin_core.readers.read import read_source
    from resin_core.readers.rejects import ReadDocument
    from resin_core.readers.sources import SourceFile, list_sources

    found: dict[str, Document] = {}
    for file in list_sources([str(corpus)]):
        if isinstance(file, SourceFile):
            rows = read_source(file, IndexingSection().max_document_bytes)
            found |= {row.document.doc_id: row.document for row in rows if isinstance(row, ReadDocument)}
    if named is not None:
        if unknown := [one for one in named if one not in found]:
            raise InputError(
                f"{corpus} has no document of the id {unknown[0]!r} ({len(unknown)} unknown); correct --ids"
            )
        return [found[one] for one in dict.fromkeys(named)]
    drawn = sorted(name for name, document in found.items() if len(document.text) >= MIN_CHARS)
    random.Random(7).shuffle(drawn)
    return [found[name] for name in drawn[:count]]


def _ids_in(file: Path | None) -> list[str] | None:
    if file is None:
        return None
    try:
        named = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"--ids {str(file)!r} cannot be read: {error}") from None
    if not isinstance(named, list) or not named or not all(isinstance(one, str) for one in named):
        raise InputError(f"--ids {str(file)!r} must hold a JSON list of document ids")
    return named


def _run(
    names: list[str], documents: list[Document], llm: LLMSection, settings: IndexingSection, results: Results
) -> None:
    from resin_core.llm.build import open_chat_model
    from resin_core.models.host import ModelHost

    async def work(served: LLMSection, base_url: str) -> None:
        async with open_chat_model(served, base_url) as model:
            await run_forms(names, documents, model, settings, served.max_concurrency, results)

    with ModelHost(llm) as host:
        asyncio.run(work(host.settings, host.base_url))


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    data = Path(os.environ.get("RESIN_DATA", "../shared/data"))
    parser.add_argument("--documents", type=int, default=20, help="how many abstracts are drawn")
    parser.add_argument("--ids", type=Path, help="a JSON list of the ids to take instead")
    parser.add_argument("--data", type=Path, default=data, help="the folder that holds holisqa/biology/corpus.jsonl")
    parser.add_argument("--forms", default=",".join(FORMS), help=f"of {', '.join(FORMS)}; default: all")
    parser.add_argument("--out", type=Path, help="JSON lines, one a document and form; appended to, and gone on from")
    parser.add_argument("--base-url", help="llm.base_url; default: as configured, else the embedded server")
    parser.add_argument("--model", help="llm.model")
    parser.add_argument("--config", type=Path, help="configuration file, as of resin")
    parser.add_argument("--set", action="append", default=[], help="one setting, as of resin; may be repeated")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    """Measure what is not measured yet, print the table; status 1 when it broke off, 2 for bad usage."""
    arguments = _arguments(given)
    own = {"llm.base_url": arguments.base_url, "llm.model": arguments.model}
    try:
        names = list(dict.fromkeys(name.strip() for name in arguments.forms.split(",")))
        if unknown := [name for name in names if name not in FORMS]:
            raise ConfigError(f"--forms: unknown form {unknown[0]!r}; there are: {', '.join(FORMS)}")
        config = load_config(arguments.config, [*arguments.set, *(f"{k}={v}" for k, v in own.items() if v)])
        corpus = arguments.data / "holisqa" / "biology" / "corpus.jsonl"
        documents = chosen(corpus, arguments.documents, _ids_in(arguments.ids))
        settings, model, results = config.indexing, config.llm.model, Results(arguments.out)
        if any(results.todo(name, documents, model, settings) for name in names):
            _run(names, documents, config.llm, settings, results)
    except ResinError as error:
        print(f"extraction_forms: {error}", file=sys.stderr)
        return error.exit_code
    print(f"{model}, {config.llm.max_concurrency} documents at once, {settings.window_sentences} sentences a window")
    print(table({name: results.of(name, documents, model, settings) for name in names}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
