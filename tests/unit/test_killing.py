"""The harness of kills: its corpus, its reading of the model's log, and its comparison of indexes."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from resin_core.config import IndexingSection
from resin_core.ids import content_hash
from resin_core.indexing.document import Indexed, index_document
from resin_core.records import Document
from resin_core.store import schema
from resin_core.store.manifest import Stamp
from resin_core.store.writer import IndexWriter
from tests.benchmarks import bench_kills
from tests.benchmarks.killing import corpus
from tests.benchmarks.killing.calls import Call, Kill, account, read_log
from tests.benchmarks.killing.compare import counts, differences
from tests.benchmarks.killing.killer import KINDS, deal
from tests.benchmarks.killing.report import as_json, as_text
from tests.benchmarks.killing.runs import JobRun, Outcome, Plan
from tests.scripted_llm import FakeChatModel
from tests.scripted_llm.actions import Action
from tests.scripted_llm.indexing_replies import play
from tests.scripted_llm.serve import CallLog, digest_of

# The corpus


def as_sent(request: dict[str, Any], passages: int = 2) -> Action:
    """The scripted reply to a request as FakeChatModel shows it."""
    wired = {"messages": request["messages"], "response_format": {"json_schema": {"schema": request["json_schema"]}}}
    return play(wired, passages)


async def indexed(record: dict[str, Any]) -> tuple[Indexed, FakeChatModel]:
    model = FakeChatModel(as_sent)
    document = Document(
        doc_id=record["id"],
        title=record["title"],
        text=record["text"],
        uri=record["id"],
        content_hash=content_hash(record["text"]),
    )
    return await index_document(document, model, IndexingSection(**Plan().indexing)), model


def test_the_corpus_is_the_same_bytes_each_time(tmp_path: Path) -> None:
    first, second = (corpus.write(tmp_path / name, 30, 7) for name in ("a", "b"))
    files = sorted(file.name for file in first.iterdir())
    assert len(files) == 4
    for name in files:
        assert (first / name).read_bytes() == (second / name).read_bytes()
    assert list(corpus.documents(3, 7)) != list(corpus.documents(3, 8))


async def test_the_corpus_gives_two_passages_a_document_and_no_call_twice() -> None:
    calls: Counter[str] = Counter()
    per_document, passages, rejects = [], 0, Counter[str]()
    for record in corpus.documents(40, 7):
        found, model = await indexed(record)
        per_document.append(len(model.requests))
        calls.update(digest_of(request.model_dump(mode="json")) for request in model.requests)
        passages += len(found.passages)
        rejects.update(reject.reason for reject in found.rejects)
        assert len(found.units) >= len(model.requests)
    assert passages >= 2 * 40
    assert max(calls.values()) == 1
    assert max(per_document) >= 4 and Counter(per_document)[1] > 20
    assert rejects.total() == 4, "one document in ten has a sentence that the model gets wrong"


def test_kinds_are_dealt_evenly_and_by_the_seed() -> None:
    assert Counter(deal(50, 7)).most_common(1)[0][1] == 13
    assert Counter(deal(4, 1)) == Counter(KINDS)
    assert deal(50, 7) == deal(50, 7) != deal(50, 8)


# The log


def test_a_digest_is_of_the_whole_request_whatever_its_order() -> None:
    assert digest_of({"a": 1, "b": {"c": 2, "d": 3}}) == digest_of({"b": {"d": 3, "c": 2}, "a": 1})
    assert digest_of({"a": 1}) != digest_of({"a": 2})


def test_a_log_with_calls_in_flight_and_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    log = CallLog(path)
    log.add("start", "1-1", digest="d1", title="One")
    log.add("start", "1-2", digest="d2", title="Two")
    log.add("end", "1-1", outcome="done")
    log.close()
    with path.open("a") as file:
        file.write('{"event": "end", "id": "1-2", "ti')
    log = CallLog(path)
    log.add("start", "2-1", digest="d2", title="Two")
    log.add("end", "2-1", outcome="cancelled")
    log.close()
    calls, torn = read_log(path)
    assert torn == 1
    assert [(call.call, call.digest, call.title, call.outcome) for call in calls] == [
        ("1-1", "d1", "One", "done"),
        ("1-2", "d2", "Two", "lost"),
        ("2-1", "d2", "Two", "cancelled"),
    ]
    assert calls[0].answered and calls[0].started_s < calls[0].ended_s < calls[2].started_s
    assert not calls[1].answered and calls[1].ended_s == float("inf")


def call(digest: str, started_s: float, ended_s: float | None = None, outcome: str = "done") -> Call:
    if ended_s is None:
        return Call(f"{digest}-{started_s}", digest, digest, started_s)
    return Call(f"{digest}-{started_s}", digest, digest, started_s, ended_s, outcome)


def kill(at_s: float, settled_s: float | None = None, kind: str = "worker") -> Kill:
    return Kill(kind, "x", at_s, at_s if settled_s is None else settled_s)


def test_an_undisturbed_log_is_clean() -> None:
    found = account([call("a", 0, 1), call("b", 0.5, 2)], [])
    assert (found.calls, found.distinct, found.repeats, found.problems()) == (2, 2, [], [])


def test_a_call_in_flight_may_be_asked_again() -> None:
    found = account(
        [call("a", 9, 10.5), call("a", 12, 13), call("b", 9.5, 10.5, "cancelled"), call("b", 12, 13)], [kill(10)]
    )
    assert (found.in_flight, found.repeated, found.paid_twice) == ([2], [1], 1)
    assert len(found.repeats) == 2
    assert found.problems() == []


@pytest.mark.parametrize(
    ("ended_s", "explained"), [(9.8, True), (9.74, False)], ids=["just before the kill", "time enough to store it"]
)
def test_a_reply_counts_as_in_flight_until_it_could_be_stored(ended_s: float, explained: bool) -> None:
    found = account([call("a", 9, ended_s), call("a", 12, 13)], [kill(10)])
    assert (found.problems() == []) is explained
    assert found.paid_twice == 1
    assert found.repeated == [1 if explained else 0]
    if not explained:
        assert found.problems() == ["a call for 'a' was asked again: answered before, in flight at no kill"]


def test_a_call_begun_by_dying_workers_is_in_flight_and_one_begun_after_is_not() -> None:
    calls = [call("a", 10.5, 10.6), call("a", 14, 15), call("b", 11.5, 11.6), call("b", 14, 15)]
    found = account(calls, [kill(10, settled_s=11, kind="driver")])
    assert found.in_flight == [1]
    assert [repeat.kill for repeat in found.repeats] == [0, None]
    assert len(found.problems()) == 1 and "'b'" in found.problems()[0]


def test_a_call_asked_before_the_kill_is_not_explained_by_it() -> None:
    found = account([call("a", 1, 2), call("a", 3, 11)], [kill(10)])
    assert len(found.problems()) == 1


def test_a_call_that_came_apart_without_a_kill_is_a_problem_though_nothing_was_paid() -> None:
    found = account([call("a", 1, 2, "cancelled"), call("a", 3, 4)], [kill(10)])
    assert found.paid_twice == 0
    assert found.problems() == ["a call for 'a' was asked again: cancelled before, in flight at no kill"]


def test_a_dead_server_ends_its_calls() -> None:
    calls = [call("a", 9), call("a", 12, 13), call("b", 14, 15)]
    found = account(calls, [kill(10, 10.1, "model"), kill(14.5)])
    assert found.in_flight == [1, 1], "the lost call is in flight at the first kill only"
    assert (found.paid_twice, found.problems()) == (0, [])


def test_repeats_of_repeats_belong_to_the_kills_that_caused_them() -> None:
    calls = [call("a", 9, 10.1), call("a", 12, 20.1, "cancelled"), call("a", 22, 23)]
    found = account(calls, [kill(10), kill(20)])
    assert [repeat.kill for repeat in found.repeats] == [0, 1]
    assert (found.repeated, found.problems()) == ([1, 1], [])


def test_overlapping_calls_of_a_dead_driver_and_its_successor() -> None:
    found = account([call("a", 9, 13), call("a", 12, 14)], [kill(10, 11, "driver")])
    assert found.paid_twice == 0, "the first was not answered yet when the second was asked"
    assert found.problems() == []


# The comparison


class Tables:
    """The rows of a small index, to be written in any division."""

    def __init__(self, found: Sequence[Indexed]) -> None:
        self.tables: dict[str, pa.Table] = {
            "documents": schema.to_table("documents", [one.document for one in found]),
            "sentences": schema.sentences_table([(one.document.doc_id, one.sentences) for one in found]),
            "passages": schema.to_table("passages", [row for one in found for row in one.passages]),
            "units": schema.to_table("units", [row for one in found for row in one.units]),
            "rejects": schema.to_table("rejects", [row for one in found for row in one.rejects]),
        }
        rows = self.tables["units"].num_rows
        drawn = np.random.default_rng(1).standard_normal((rows, 8)).astype(np.float32)
        self.vectors = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)

    def write(self, index: Path, parts: int = 1) -> Path:
        """The rows dealt to part files, in another order when there are several."""
        writer, entries = IndexWriter(index), []
        ids = self.tables["units"].column("unit_id").combine_chunks()
        for part in range(parts):
            for name, table in self.tables.items():
                rows = list(range(part, table.num_rows, parts))[::-1]
                if rows:
                    entries.append(writer.write_table(name, table.take(rows)))
            rows = list(range(parts - 1 - part, len(ids), parts))
            entries.append(
                writer.write_table("vectors", schema.vectors_table(ids.take(pa.array(rows)), self.vectors[rows]))
            )
        writer.publish(entries, Stamp(encoder="hand-made", dimension=8, resin_version="0"))
        return index


@pytest.fixture(scope="module")
def some() -> list[Indexed]:
    async def make() -> list[Indexed]:
        return [(await indexed(record))[0] for record in corpus.documents(4, 7)]

    return asyncio.run(make())


@pytest.fixture
def tables(some: list[Indexed]) -> Tables:
    """To be changed by the test."""
    return Tables(some)


@pytest.fixture
def reference(tables: Tables, tmp_path: Path) -> Path:
    return tables.write(tmp_path / "reference")


def test_equal_rows_in_other_files_and_another_order_are_equal(tables: Tables, reference: Path, tmp_path: Path) -> None:
    other = tables.write(tmp_path / "other", parts=3)
    assert differences(reference, other) == []
    assert counts(other)["units"] == tables.tables["units"].num_rows


@pytest.mark.parametrize("name", ["documents", "sentences", "passages", "rejects"])
def test_a_lost_row_is_found(tables: Tables, reference: Path, tmp_path: Path, name: str) -> None:
    table = tables.tables[name]
    lost = json.dumps(table.slice(0, 1).to_pylist()[0], sort_keys=True, ensure_ascii=False)
    tables.tables[name] = table.slice(1)
    (found,) = differences(reference, tables.write(tmp_path / "other"))
    assert found == f"{name}: 1 missing, first {lost[:200]}"


def test_a_row_that_is_there_twice_is_found(tables: Tables, reference: Path, tmp_path: Path) -> None:
    table = tables.tables["sentences"]
    tables.tables["sentences"] = pa.concat_tables([table, table.slice(2, 1)])
    (found,) = differences(reference, tables.write(tmp_path / "other"))
    assert found.startswith("sentences: 1 not in the reference, first ")


def test_any_changed_field_of_a_unit_is_found(tables: Tables, reference: Path, tmp_path: Path) -> None:
    table = tables.tables["units"]
    scopes = ["never", *table.column("scope").to_pylist()[1:]]
    at = table.schema.get_field_index("scope")
    tables.tables["units"] = table.set_column(at, table.schema.field(at), pa.array(scopes, pa.large_string()))
    (found,) = differences(reference, tables.write(tmp_path / "other"))
    assert found.startswith("units: 1 missing, first ") and "; 1 not in the reference" in found


@pytest.mark.parametrize(("moved", "differs"), [(5e-7, False), (1e-5, True)])
def test_vectors_may_differ_by_rounding_only(
    tables: Tables, reference: Path, tmp_path: Path, moved: float, differs: bool
) -> None:
    tables.vectors[0] += np.float32(moved) * np.eye(8, dtype=np.float32)[0]
    found = differences(reference, tables.write(tmp_path / "other"))
    assert [line.partition(":")[0] for line in found] == (["vectors"] if differs else [])
    if differs:
        assert str(tables.tables["units"].column("unit_id")[0]) in found[0]


# The report


def outcome(job: JobRun, kills: int = 1) -> Outcome:
    reference = JobRun(Path("reference"), finished=True, starts=1)
    return Outcome(Plan(documents=1, kills=kills), reference, {"passages": 2}, [job])


def finished(**values: Any) -> JobRun:
    calls = [call("a", 9, 10.5), call("a", 12, 13)]
    kills = [kill(10)]
    return JobRun(
        Path("job"), **{"kills": kills, "starts": 2, "finished": True, "account": account(calls, kills)} | values
    )


def test_a_good_outcome_has_no_problems() -> None:
    good = outcome(finished())
    value = as_json(good)
    assert (value["problems"], value["calls"], value["repeated_calls"], value["max_repeated_per_kill"]) == ([], 2, 1, 1)
    assert value["driver_restarts"] == 1
    assert "equal" in as_text(good) and "OFF" not in as_text(good)
    assert bench_kills.too_small(good) == []


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"unequal": ["units: 1 missing"]}, "job 1: units: 1 missing"),
        ({"unsound": "altered"}, "job 1: resin verify: altered"),
        ({"finished": False}, "job 1: the job did not finish"),
        ({"fell": ["resin: no"]}, "job 1: the job fell by itself: resin: no"),
        ({"strange_calls": 2}, "job 1: 2 calls that the undisturbed run did not make"),
        ({"unasked_calls": 3}, "job 1: 3 calls of the undisturbed run were never made"),
        ({"kills": [], "account": account([], [])}, "only 0 of 1 kills were dealt"),
        (
            {"account": account([call("a", 1, 2), call("a", 3, 4)], [kill(10)])},
            "job 1: a call for 'a' was asked again: answered before, in flight at no kill",
        ),
    ],
)
def test_each_thing_that_is_off_is_named(
    values: dict[str, Any],
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bad = outcome(finished(**values))
    assert bad.problems() == [problem]
    monkeypatch.setattr(bench_kills, "experiment", lambda plan, out, tell: bad)
    assert bench_kills.finish(bad.plan, tmp_path) == 1
    assert f"OFF: {problem}" in capsys.readouterr().out
    assert json.loads((tmp_path / "kills.json").read_text())["problems"] == [problem]


def test_too_small_a_corpus_is_off_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    thin = outcome(finished())
    thin.counts["passages"] = 1
    monkeypatch.setattr(bench_kills, "experiment", lambda plan, out, tell: thin)
    assert bench_kills.finish(thin.plan, tmp_path) == 1


def test_a_reply_of_one_passage_stays_the_rule() -> None:
    numbers = [str(number) for number in range(1, 7)]
    shown = "title: T\n" + "\n".join(f"[{number}] The gate of T weighs {number} tonnes." for number in numbers)
    properties = {"units": {"properties": {key: {} for key in numbers}}, "passages": {"maxItems": 2}}
    request = {
        "messages": [{"role": "user", "content": shown}],
        "response_format": {"json_schema": {"schema": {"properties": properties}}},
    }

    def passages(reply: Any) -> list[str]:
        return [row.partition(" ")[0] for row in json.loads(reply.text)["passages"]]

    assert passages(play(request)) == ["1-6"]
    assert passages(partial(play, passages=2)(request)) == ["1-3", "4-6"]
    assert passages(play(request, passages=9)) == ["1-3", "4-6"], "no more than the schema allows"
