"""The comparison of extraction forms: what it asks for, what it counts, and that it goes on where it stopped."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from resin_core.config import IndexingSection
from resin_core.errors import ContextLengthError, InputError, LLMUnavailableError
from resin_core.ids import content_hash
from resin_core.indexing.document import index_document
from resin_core.prompts import extraction as wire
from resin_core.records import Document
from tests.benchmarks import extraction_counts, extraction_forms
from tests.benchmarks.extraction_counts import Measured, key_of, measure, wall_s
from tests.benchmarks.extraction_forms import Results, chosen, main, run_forms
from tests.benchmarks.extraction_replies import FORMS, OBJECTS, QUOTES, as_line, as_object, find_quote, quoted
from tests.scripted_llm import FakeChatModel, Reply, Reset, ScriptedServer

TEXT = (
    "The Halden station lifts water from the river Eme. It has three pumps of the type Orla. "
    "Kessel built the pumps in 1987. If the basin level falls below 2 m, the second pump starts."
)
CLAIMS = {
    "1": ["rel | Halden station | lifts water from | river Eme"],
    "2": ["fact | Halden station | number of pumps | three", "no claim at all"],
    "3": ["rel | Kessel | built | pumps | 1988"],
    # Given for the wrong sentence.
    "4": ["rel | Kessel | built | pumps | 1987"],
}
SPANS = ["1-3 | Halden station | station | pumps | description", "4-4 | Halden station | station | start | condition"]
SENTENCES = [(1, "The Halden station lifts water."), (2, "It has three pumps."), (3, "Kessel built them in 1987.")]
SETTINGS = IndexingSection(repair_attempts=0)
SHOWN = re.compile(r"^\[(\d+)\] (.*)$", re.MULTILINE)


def document(doc_id: str = "d", text: str = TEXT) -> Document:
    return Document(doc_id=doc_id, title="Halden", text=text, uri="u", content_hash=content_hash(text))


def answer(request: dict[str, Any]) -> Reply:
    """CLAIMS and SPANS in whatever form the request's schema asks for."""
    asked = request["messages"][-1]["content"]
    shown = dict(SHOWN.findall(asked))
    schema = (request.get("response_format") or {}).get("json_schema", {}).get("schema") or request["json_schema"]
    claims = {number: rows for number, rows in CLAIMS.items() if number in shown}
    value: dict[str, Any] = {}
    if "passages" in schema["properties"]:
        value["passages"] = SPANS
    if (units := schema["properties"].get("units")) is not None:
        value["units"] = claims
        if units["type"] == "array":
            value["units"] = quoted(asked, claims)
        elif next(iter(units["properties"].values()))["items"]["type"] == "object":
            value["units"] = {number: [as_object(row) for row in rows] for number, rows in claims.items()}
    return Reply(json.dumps(value), usage=(100, 10))


async def measured(name: str, *actions: Any, text: str = TEXT, **settings: Any) -> Measured:
    model = FakeChatModel(*(actions or (answer,)))
    return await measure(name, FORMS[name], document(text=text), model, SETTINGS.model_copy(update=settings), "run")


# What is asked for


def test_quotes_show_each_claim_with_its_own_sentence() -> None:
    (_, pump), _ = QUOTES.examples
    claims = json.loads(pump)["units"]
    assert claims[0].endswith(" | river Eme | The Halden station lifts water from the river Eme.")
    assert len(claims) == sum(map(len, wire.PUMP_UNITS.values()))
    assert all(find_quote(row.split(" | ")[-1], [(1, wire.PUMP)]) == 1 for row in claims)


def test_objects_show_the_claims_of_the_product_and_no_others() -> None:
    for (_, reply), claims in zip(OBJECTS.examples, (wire.PUMP_UNITS, wire.BARLEY_UNITS), strict=True):
        given = json.loads(reply)["units"]
        assert {number: [as_line(one) for one in rows] for number, rows in given.items()} == claims


def test_a_bar_within_an_object_makes_no_new_part() -> None:
    assert as_line({"kind": "fact", "subject": "a|b", "property": "p", "value": "1"}) == "fact | a/b | p | 1"


@pytest.mark.parametrize(
    ("quote", "number"),
    [
        ("The Halden station lifts water.", 1),
        ("lifts  water", 1),
        ('"It has three pumps."', 2),
        ("Kessel built them in 1986.", 3),
        ("It has three pumps. Kessel built them in 1987.", 3),
        ("It has three pumps. Kessel", 2),
        ("The station was painted green.", None),
        ("...", None),
        ("", None),
    ],
)
def test_a_quote_is_found_by_its_words(quote: str, number: int | None) -> None:
    assert find_quote(quote, SENTENCES) == number


# What is counted


async def test_every_form_is_counted_alike() -> None:
    found = {name: await measured(name) for name in FORMS}
    numbers = found["numbers"].counts
    assert (numbers.claims, numbers.parsed, numbers.grounded, numbers.hint_right) == (5, 4, 3, 2)
    assert numbers.failures == {"ground:number-not-in-source": 1, "parse:bad-claim": 1}
    assert (numbers.units, numbers.exact, numbers.covered, found["numbers"].sentences) == (3, 3, 3, 4)
    assert found["objects"].counts == numbers
    assert found["two-calls"].counts == numbers
    assert {name: one.usage.llm_calls for name, one in found.items()} == {
        "numbers": 1,
        "two-calls": 3,
        "quotes": 1,
        "objects": 1,
    }


async def test_a_claim_without_a_quote_that_is_found_is_lost() -> None:
    found = (await measured("quotes")).counts
    # "no claim at all" has too few parts to have a quote.
    assert found.failures == {"align:quote-not-found": 1, "ground:number-not-in-source": 1}
    assert (found.claims, found.parsed, found.grounded) == (5, 4, 3)


async def test_the_product_is_measured_as_it_is() -> None:
    mine = (await measured("numbers", window_sentences=2)).counts
    theirs = await index_document(
        document(), FakeChatModel(answer), SETTINGS.model_copy(update={"window_sentences": 2})
    )
    reasons = Counter(f"{reject.stage}:{reject.reason}" for reject in theirs.rejects)
    assert (mine.units, Counter(mine.failures)) == (len(theirs.units), reasons)
    assert theirs.units and reasons


async def test_a_name_that_stands_for_a_pronoun_is_not_exact() -> None:
    text = "The Osk Bridge was opened in 1911. Heavy lorries are not allowed on it."
    claims = {"1": ["fact | Osk Bridge | opened | 1911"], "2": ["fact | heavy lorries | not allowed on | Osk Bridge"]}
    reply = Reply(json.dumps({"units": claims, "passages": ["1-1 | a | b | c | d", "2-2 | a | b | c | d"]}))
    found = (await measured("numbers", reply, text=text)).counts
    assert (found.grounded, found.units, found.exact) == (2, 2, 1)


@pytest.mark.parametrize("name", ["numbers", "quotes", "objects"])
async def test_a_reply_that_cannot_be_used_is_counted(name: str) -> None:
    found = await measured(name, Reply("no JSON", usage=(100, 3)))
    assert sum(found.counts.failures.values()) == 1
    assert next(iter(found.counts.failures)).endswith(":not-json")
    assert (found.counts.claims, found.usage.completion_tokens) == (0, 3)


@pytest.mark.parametrize("name", ["quotes", "objects"])
async def test_a_window_that_does_not_fit_is_halved(name: str) -> None:
    def short(request: dict[str, Any]) -> Reply:
        if len(SHOWN.findall(request["messages"][-1]["content"])) > 2:
            raise ContextLengthError("too long")
        return answer(request)

    halved, whole = await measured(name, short), await measured(name)
    assert (halved.usage.llm_calls, halved.counts) == (2, whole.counts)


async def test_a_sentence_that_does_not_fit_is_counted() -> None:
    def never(request: dict[str, Any]) -> Reply:
        raise ContextLengthError("too long")

    assert (await measured("quotes", never)).counts.failures == {"extract:context-length": 4}


def test_documents_side_by_side_take_their_time_once() -> None:
    def row(run: str, began_s: float, ended_s: float) -> Measured:
        counts = extraction_counts.Counts(
            claims=0, parsed=0, grounded=0, hint_right=0, units=0, exact=0, covered=0, failures={}
        )
        times = {"run": run, "began_s": began_s, "ended_s": ended_s}
        rest = {"usage": {}, "source_tokens": 1, "source_words": 1, "sentences": 1, "counts": counts}
        return Measured.model_validate({"form": "numbers", "id": "d", "key": "k", **times, **rest})

    assert wall_s([row("a", 10, 30), row("a", 15, 40), row("b", 100, 105)]) == 35
    assert wall_s([]) == 0


async def test_the_table_has_a_column_a_form_and_says_what_failed() -> None:
    lines = extraction_counts.table({"numbers": [await measured("numbers")], "quotes": []}).splitlines()
    cells = {line[: len(lines[0]) // 2].split("  ")[0]: line.split()[-2:] for line in lines}
    assert lines[0].split() == ["numbers", "quotes"]
    assert cells["grounded of claims"] == ["60.0%", "-"]
    assert cells["hint right of grounded"] == ["66.7%", "-"]
    assert cells["output tokens / unit"] == ["3.33", "-"]
    assert cells["parse:bad-claim"] == ["1", "0"]


# Runs


async def test_a_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    file, documents = tmp_path / "out.jsonl", [document("a"), document("b"), document("c")]
    broken = FakeChatModel(answer_then_reset())
    with pytest.raises(LLMUnavailableError):
        await run_forms(["numbers"], documents, broken, SETTINGS, 1, Results(file))
    with file.open("a", encoding="utf-8") as out:
        out.write('{"form": "numb')  # as a kill in the middle of a write leaves it

    model = FakeChatModel(answer)
    await run_forms(["numbers", "objects"], documents, model, SETTINGS, 2, Results(file))
    assert Counter(request.schema_name for request in model.requests) == {"index_document": 2, "objects": 3}

    again, results = FakeChatModel(answer), Results(file)
    await run_forms(["numbers", "objects"], documents, again, SETTINGS, 2, results)
    assert again.requests == []
    assert len(results.of("numbers", documents, "scripted", SETTINGS)) == 3
    other = SETTINGS.model_copy(update={"window_sentences": 3})
    assert results.todo("numbers", documents, "scripted", other) == documents
    assert results.todo("numbers", documents, "another model", SETTINGS) == documents


def answer_then_reset() -> Any:
    calls = iter(range(100))
    return lambda request: answer(request) if next(calls) == 0 else Reset()


def test_forms_have_keys_of_their_own() -> None:
    assert len({key_of(form, "m", SETTINGS) for form in FORMS.values()}) == len(FORMS)


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RESIN_CONFIG", "RESIN_DATA", "RESIN_LLM_BASE_URL", "RESIN_LLM_MODEL", "RESIN_LLM_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    file = tmp_path / "holisqa" / "biology" / "corpus.jsonl"
    file.parent.mkdir(parents=True)
    rows = [
        {"id": f"A{n}", "title": "Halden", "text": f"{TEXT} Pump {n} is green and was painted by Kessel."}
        for n in range(9)
    ]
    rows.append({"id": "short", "title": "t", "text": "Too short."})
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def test_the_same_documents_are_drawn_and_more_of_them_begin_with_these(corpus: Path) -> None:
    few, more = chosen(corpus, 3), chosen(corpus, 6)
    assert [one.doc_id for one in few] == [one.doc_id for one in more][:3]
    assert (len(few), len(more)) == (3, 6)
    assert "short" not in {one.doc_id for one in chosen(corpus, 100)}
    assert [one.doc_id for one in chosen(corpus, 1, ["short", "A2", "short"])] == ["short", "A2"]


def test_nothing_to_draw_is_said(tmp_path: Path) -> None:
    file = tmp_path / "corpus.jsonl"
    file.write_text('{"id": "short", "title": "t", "text": "Too short."}\n')
    with pytest.raises(InputError, match="no document of 200 characters"):
        chosen(file, 3)


def test_an_unknown_id_is_named(corpus: Path) -> None:
    with pytest.raises(InputError, match=r"no document 'A77' \(1 are unknown\)"):
        chosen(corpus, 1, ["A1", "A77"])


@pytest.mark.parametrize("content", ["[]", '{"a": 1}', "[1]", "not JSON", None])
def test_a_list_of_ids_that_is_none_is_refused(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "ids.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(InputError, match="ids"):
        extraction_forms.ids_in(file)


def test_the_script_prints_a_table_and_keeps_its_results(
    corpus: Path, tmp_path: Path, scripted_llm: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    scripted_llm.script(answer)
    out = tmp_path / "out.jsonl"
    given = ["--data", str(tmp_path), "--documents", "2", "--forms", "numbers,quotes", "--out", str(out)]
    given += ["--base-url", scripted_llm.base_url, "--model", "scripted"]
    assert main(given) == 0
    first = capsys.readouterr().out
    assert len(scripted_llm.chats) == 4 == len(out.read_text().splitlines())
    assert re.search(r"^documents +2 +2$", first, re.MULTILINE)

    given[given.index(scripted_llm.base_url)] = "http://127.0.0.1:9/v1"  # nobody is there, and nobody is asked
    assert main(given) == 0
    assert capsys.readouterr().out == first


@pytest.mark.parametrize(
    ("given", "status", "said"),
    [
        (["--forms", "numbers,poems"], 2, "unknown form 'poems'"),
        (["--set", "indexing.windows=3"], 2, "unknown setting indexing.windows"),
        (["--documents", "0"], 2, "--documents"),
        (["--data", "/nowhere"], 1, "does not exist"),
        (["--out", "/nowhere/out.jsonl"], 1, "--out"),
        (["--base-url", "http://127.0.0.1:9/v1"], 1, "127.0.0.1:9"),
    ],
)
def test_what_is_wrong_is_one_line(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], given: list[str], status: int, said: str
) -> None:
    assert main(["--data", str(tmp_path), *given]) == status
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err and captured.err.count("\n") == 1
