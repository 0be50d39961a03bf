"""What `extraction_forms` counts of one document, and the table over many."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence

from resin_core import ids
from resin_core.config import IndexingSection
from resin_core.errors import ContextLengthError
from resin_core.indexing import document as product
from resin_core.indexing.claims import parse_claim
from resin_core.indexing.extract import Extracted, Failure, together
from resin_core.indexing.grounding import Grounding, ground
from resin_core.indexing.matching import missing, source
from resin_core.indexing.normalise import build_unit, merge_duplicates
from resin_core.indexing.passages import build_passages
from resin_core.indexing.words import content, tokens
from resin_core.llm.context import count_tokens_estimate
from resin_core.llm.protocol import ChatModel
from resin_core.prompts.base import shown
from resin_core.records import Document, Record, Sentence, Usage
from resin_core.text.sentences import split_sentences
from tests.benchmarks.extraction_replies import Ask, Form


class Counts(Record):
    """Claims on their way to units. `hint_right`: of the grounded, those that came with a number that was kept.

    `exact` counts units whose predicate, value and limits hold no number and no name that their span lacks as written:
    names in the place of a pronoun, and short for long forms, which grounding allows, count against it.
    """

    claims: int
    parsed: int
    grounded: int
    hint_right: int
    units: int
    exact: int
    covered: int
    failures: dict[str, int]


class Measured(Record):
    """One document in one form. `key` is of model, settings and prompts; times are seconds since the epoch."""

    form: str
    id: str
    key: str
    run: str
    began_s: float
    ended_s: float
    usage: Usage
    source_tokens: int
    source_words: int
    sentences: int
    counts: Counts


def key_of(form: Form, model: str, settings: IndexingSection) -> str:
    """Of all that a result depends on beside the document."""
    return ids.digest((model, settings.model_dump_json(), *(prompt.id for prompt in form.prompts)), 16)


async def measure(
    name: str, form: Form, document: Document, model: ChatModel, settings: IndexingSection, run: str
) -> Measured:
    """One document in one form. Raises LLMError kinds when the endpoint is down."""
    began_s = time.time()
    sentences = split_sentences(document.doc_id, document.text, settings.max_sentence_chars)
    windows = product._windows(document.text, sentences, settings)
    got = await together([_window(form.ask, model, document, window, settings) for window in windows])
    return Measured(
        form=name,
        id=document.doc_id,
        key=key_of(form, model.model_name, settings),
        run=run,
        began_s=began_s,
        ended_s=time.time(),
        usage=sum((one.usage for one in got), Usage()),
        source_tokens=count_tokens_estimate(document.text),
        source_words=len(document.text.split()),
        sentences=sum(not line.heading for window in windows for line in window.lines),
        counts=counted(document, sentences, list(zip(windows, got, strict=True)), settings),
    )


async def _window(
    ask: Ask, model: ChatModel, document: Document, window: product._Window, settings: IndexingSection
) -> Extracted:
    """One window, in halves when it does not fit the model's context, as the product does it."""
    lines = window.lines
    try:
        return await ask(model, document.title, lines, settings)
    except ContextLengthError as error:
        if len(lines) == 1:
            return Extracted(failures=[Failure("extract", "context-length", str(error), lines[0].text)])
    half = len(lines) // 2
    both = Extracted()
    for part in (slice(None, half), slice(half, None)):
        got = await _window(ask, model, document, product._Window(window.sentences[part], lines[part]), settings)
        both.spans += got.spans
        both.claims += got.claims
        both.failures += got.failures
        both.usage += got.usage
        both.repaired = both.repaired or got.repaired
    return both


def counted(
    document: Document,
    sentences: Sequence[Sentence],
    got: Sequence[tuple[product._Window, Extracted]],
    settings: IndexingSection,
) -> Counts:
    """The windows' claims through the product's parser, grounding and merging, step by step to be counted."""
    spans = [span for window, one in got for span in product._spans(window, one, settings)]
    passage_of = {}
    for span, passage in zip(sorted(spans), build_passages(document, sentences, spans), strict=True):
        passage_of.update(dict.fromkeys(range(span.first, span.last + 1), passage))
    by_number = {sentence.number: sentence for sentence in sentences}
    starts = {span.first for span in spans}
    passed, failures = Counter[str](), Counter[str]()
    made = []
    for window, one in got:
        failures.update(f"{failure.stage}:{failure.reason}" for failure in one.failures)
        passed["claims"] += len(one.claims) + sum(failure.stage == "align" for failure in one.failures)
        texts = [(line.number, shown(line.text)) for line in window.lines]
        context = " ".join([shown(document.title), *(text for _, text in texts)])
        for hint, raw in one.claims:
            claim = parse_claim(raw)
            if claim is None:
                failures["parse:bad-claim"] += 1
                continue
            passed["parsed"] += 1
            result = ground(claim, texts, hint, context, starts)
            if not isinstance(result, Grounding):
                failures[f"ground:{result.reason}"] += 1
                continue
            passed["grounded"] += 1
            passed["hint_right"] += result.start_sentence <= hint <= result.end_sentence
            passage = passage_of[result.start_sentence]
            made.append(build_unit(claim, result, passage, by_number, document.text, one.repaired))
    units = merge_duplicates(made, document.text)
    for unit in units:
        words = [word for part in (unit.predicate, unit.object, unit.scope) for word in content(tokens(part))]
        passed["exact"] += not missing(words, source(unit.evidence_quote))
    return Counts(
        claims=passed["claims"],
        parsed=passed["parsed"],
        grounded=passed["grounded"],
        hint_right=passed["hint_right"],
        units=len(units),
        exact=passed["exact"],
        covered=len({sentence_id for unit in units for sentence_id in unit.sentence_ids}),
        failures=dict(sorted(failures.items())),
    )


def wall_s(rows: Sequence[Measured]) -> float:
    """Seconds from the first start to the last end, summed over runs: documents that went side by side count once."""
    runs: dict[str, list[Measured]] = {}
    for row in rows:
        runs.setdefault(row.run, []).append(row)
    return sum(max(row.ended_s for row in run) - min(row.began_s for row in run) for run in runs.values())


def figures(rows: Sequence[Measured]) -> dict[str, str]:
    """The column of one form."""
    usage = sum((row.usage for row in rows), Usage())
    counts = [row.counts for row in rows]
    claims, grounded = sum(one.claims for one in counts), sum(one.grounded for one in counts)
    parsed, units = sum(one.parsed for one in counts), sum(one.units for one in counts)
    return {
        "documents": f"{len(rows):,}",
        "LLM calls": f"{usage.llm_calls:,}",
        "prompt tokens": f"{usage.prompt_tokens:,}",
        "output tokens": f"{usage.completion_tokens:,}",
        "output tokens / source token (estimate)": _ratio(
            usage.completion_tokens, sum(row.source_tokens for row in rows)
        ),
        "output tokens / source word": _ratio(usage.completion_tokens, sum(row.source_words for row in rows)),
        "output tokens / unit": _ratio(usage.completion_tokens, units),
        "seconds / document": _ratio(wall_s(rows), len(rows)),
        "claims": f"{claims:,}",
        "parsed": f"{parsed:,}",
        "grounded": f"{grounded:,}",
        "grounded of claims": _share(grounded, claims),
        "hint right of grounded": _share(sum(one.hint_right for one in counts), grounded),
        "units": f"{units:,}",
        "exact of units": _share(sum(one.exact for one in counts), units),
        "sentences with a unit": _share(sum(one.covered for one in counts), sum(row.sentences for row in rows)),
    }


def table(by_form: Mapping[str, Sequence[Measured]]) -> str:
    """A line a figure, a column a form; below them what failed, by stage and reason."""
    made = [figures(rows) for rows in by_form.values()]
    failed = [sum((Counter(row.counts.failures) for row in rows), Counter[str]()) for rows in by_form.values()]
    lines = [("", list(by_form)), *((name, [column[name] for column in made]) for name in figures(()))]
    lines += [(reason, [f"{one[reason]:,}" for one in failed]) for reason in sorted(set().union(*failed))]
    first = max(len(name) for name, _ in lines)
    width = max(len(cell) for _, cells in lines for cell in cells)
    return "\n".join(f"{name:<{first}}" + "".join(f"  {cell:>{width}}" for cell in cells) for name, cells in lines)


def _ratio(part: float, whole: float) -> str:
    return f"{part / whole:.2f}" if whole else "-"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"
