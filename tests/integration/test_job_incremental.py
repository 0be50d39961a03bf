"""Indexing again: what is unchanged, changed, moved or removed, and what of it is paid for."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.retry import run as retry
from resin_core.errors import InputError
from resin_core.records import ReasoningUnit
from resin_core.store.filesystem import IndexFolder
from resin_core.store.manifest import read_manifest
from resin_core.store.reader import IndexReader
from tests.integration.indexing_runs import config_for, contents, corpus, index, local_ray, sound, text_of, write_corpus
from tests.scripted_llm import Reply, ScriptedServer
from tests.scripted_llm.indexing_replies import play, title_of

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with local_ray():
        yield


@pytest.fixture
def model(scripted_llm: ScriptedServer) -> ScriptedServer:
    scripted_llm.script(play)
    return scripted_llm


def units_of(place: Path, doc_id: str) -> list[ReasoningUnit]:
    return [unit for unit in IndexReader.open(place).iter_units() if unit.doc_id == doc_id]


def test_one_edited_sentence_costs_one_call_and_changes_nothing_else(tmp_path: Path, model: ScriptedServer) -> None:
    texts = {f"d{n:03}": text_of(n, 36) for n in range(8)}
    source, place = write_corpus(tmp_path / "c.jsonl", texts), tmp_path / "index"
    first = index(model, source, place)
    assert first.llm_calls == 32, "four windows a document"
    before, reader = contents(place), IndexReader.open(place)
    model.seen.clear()
    texts["d004"] = texts["d004"].replace("4-20 weighs 25 tonnes", "4-20 weighs 99 tonnes")
    second = index(model, write_corpus(source, texts), place)
    assert [title_of(seen.body) for seen in model.chats] == ["d004"]
    assert (second.documents, second.reused, second.llm_calls, second.carried) == (1, 7, 1, 3)
    after = contents(place)
    assert len(before["passages"] - after["passages"]) == 1
    assert len(before["units"] - after["units"]) <= 10
    assert any(unit.object == "99 tonnes" for unit in units_of(place, "d004"))
    assert not any(unit.object == "25 tonnes" and "4-20" in unit.subject for unit in units_of(place, "d004"))
    assert {unit.unit_id for unit in reader.iter_units()} == before["units"], "an open reader keeps its generation"
    assert sound(place)


def test_a_moved_file_costs_nothing(tmp_path: Path, model: ScriptedServer) -> None:
    folder, place = tmp_path / "texts", tmp_path / "index"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.txt").write_text(text_of(number, 12), encoding="utf-8")
    index(model, folder, place)
    ids = {unit.object for unit in units_of(place, "1.txt")}
    model.seen.clear()
    (folder / "sub").mkdir()
    (folder / "1.txt").rename(folder / "sub" / "renamed.txt")
    moved = index(model, folder, place)
    assert model.chats == []
    assert (moved.documents, moved.reused, moved.llm_calls) == (1, 2, 0)
    assert {unit.object for unit in units_of(place, "sub/renamed.txt")} == ids
    assert sound(place)


def test_an_unchanged_corpus_costs_nothing_and_shares_every_file(tmp_path: Path, model: ScriptedServer) -> None:
    source, place = corpus(tmp_path / "c.jsonl", 5), tmp_path / "index"
    index(model, source, place)
    folder = IndexFolder.at(place)
    files = {entry.path for entry in read_manifest(folder).files}
    model.seen.clear()
    again = index(model, source, place)
    assert (again.documents, again.reused, len(model.chats)) == (0, 5, 0)
    assert {entry.path for entry in read_manifest(folder).files} == files


def test_another_model_reads_all_again_and_the_first_one_is_not_taken_for_it(
    tmp_path: Path, model: ScriptedServer
) -> None:
    one, two = corpus(tmp_path / "one.jsonl", 2), write_corpus(tmp_path / "two.jsonl", {"other": text_of(50)})
    place = tmp_path / "index"
    index(model, one, place)
    model.models = []
    index(model, two, place, "llm.model=second")
    assert index(model, two, place, "llm.model=second").reused == 1
    again = index(model, one, place, "llm.model=second")
    assert (again.documents, again.reused, again.llm_calls) == (2, 0, 2), "what the first model read is read again"


def test_what_is_wrong_in_a_source_is_forgotten_once_it_is_mended(tmp_path: Path, model: ScriptedServer) -> None:
    source, place = corpus(tmp_path / "c.jsonl", 2), tmp_path / "index"
    good = source.read_text()
    source.write_text(good + "{no json\n")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x.pdf").write_bytes(b"no pdf")
    first = index(model, [source, tmp_path / "other"], place)
    assert first.rejects == {"read:corrupt": 1, "read:invalid-json": 1}
    source.write_text(good)
    index(model, source, place)
    rejects = list(IndexReader.open(place).iter_rejects())
    assert [(reject.reason, reject.doc_id) for reject in rejects] == [("corrupt", "x.pdf")]
    assert sound(place)


def test_rejects_are_tried_again_from_the_index_and_from_files(tmp_path: Path, model: ScriptedServer) -> None:
    folder, place = tmp_path / "texts", tmp_path / "index"
    (folder / "deep").mkdir(parents=True)
    for number in range(3):
        (folder / f"{number}.txt").write_text(text_of(number, 12), encoding="utf-8")
    (folder / "deep" / "late.txt").write_bytes(b"  ")
    model.script(unreadable("1-0"))
    first = index(model, folder, place)
    assert first.rejects == {"index_document:not-json": 1, "read:empty": 1}
    model.script(play)
    model.seen.clear()
    (folder / "deep" / "late.txt").write_text(text_of(7), encoding="utf-8")
    # What the index holds is taken from there.
    (folder / "0.txt").unlink()
    (folder / "1.txt").unlink()
    again = retry((), str(place), config_for(model), lambda step: None)
    assert (again.documents, again.rejects, again.llm_calls, again.carried) == (2, {}, 2, 1)
    doc_ids = {unit.doc_id for unit in IndexReader.open(place).iter_units()}
    assert doc_ids == {"0.txt", "1.txt", "2.txt", "deep/late.txt"}
    assert not list(IndexReader.open(place).iter_rejects())
    assert sound(place)
    with pytest.raises(InputError, match="that could be tried again"):
        retry((), str(place), config_for(model), lambda step: None)


def unreadable(part: str) -> Any:
    """No JSON for what shows that part."""
    return lambda request: Reply("no json") if part in request["messages"][-1]["content"] else play(request)


def test_replies_of_other_documents_stay_paid_for(tmp_path: Path, model: ScriptedServer) -> None:
    """A run that was killed over one source loses nothing when another source is indexed in between."""
    one, two = corpus(tmp_path / "one.jsonl", 40), write_corpus(tmp_path / "two.jsonl", {"other": text_of(90)})
    place = tmp_path / "index"
    model.latency_s = 0.3
    job = start(model, one, place)
    wait_for(lambda: len(model.chats) >= 16)
    job.kill()
    job.wait()
    finished = {title_of(seen.body) for seen in model.chats if seen.outcome == "done"}
    model.latency_s = 0.0
    index(model, two, place)
    model.seen.clear()
    done = index(model, one, place)
    asked = {title_of(seen.body) for seen in model.chats}
    assert done.documents == 40
    # A reply may have come whose keeping the kill cut short.
    assert len(asked & finished) <= 8
    assert done.resumed == 40 - len(asked) > 0
    assert not (place / "work" / "replies").exists()


def test_sigterm_waits_for_calls_in_flight_and_keeps_them(tmp_path: Path, model: ScriptedServer) -> None:
    source, place = corpus(tmp_path / "c.jsonl", 60), tmp_path / "index"
    model.latency_s = 1.0
    job = start(model, source, place)
    wait_for(lambda: len(model.chats) >= 10)
    job.terminate()
    _, errors = job.communicate(timeout=60)
    assert job.returncode == 143
    assert "stopped by SIGTERM" in errors
    assert "Traceback" not in errors
    assert not (place / "CURRENT").exists()
    assert model.cancelled == []
    paid = {title_of(seen.body) for seen in model.chats}
    assert len(paid) < 60
    model.seen.clear()
    model.latency_s = 0.0
    done = index(model, source, place)
    assert {title_of(seen.body) for seen in model.chats}.isdisjoint(paid)
    assert done.resumed == len(paid)


def start(model: ScriptedServer, source: Path, place: Path) -> subprocess.Popen[str]:
    """`python -m jobs.index` as a process, as a RayJob starts it."""
    configured = source.with_suffix(".yaml")
    configured.write_text(
        f"index: {{uri: {place}}}\nindexing: {{sources: [{source}]}}\n"
        f"llm: {{base_url: '{model.base_url}', model: scripted, max_concurrency: 8}}\n"
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RESIN_", "RAY_"))}
    command = [sys.executable, "-m", "jobs.index", "--config", str(configured)]
    return subprocess.Popen(command, env=kept, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(condition: object, timeout_s: float = 90) -> None:
    end = time.monotonic() + timeout_s
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.05)
