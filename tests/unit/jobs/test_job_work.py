from __future__ import annotations

import asyncio
from pathlib import Path, PurePosixPath

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.work import WorkFolder
from resin_core.llm.protocol import Reply
from resin_core.records import Usage

TABLE = pa.table({"text": ["one", "two \x00", "\U0001f600"]})


def folder(place: Path, run: str = "run", results: str = "results") -> WorkFolder:
    return WorkFolder(place, run, results)


def files(place: Path) -> list[str]:
    return sorted(path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file())


def read(work: WorkFolder, path: str) -> pa.Table:
    with work.open(PurePosixPath(path)) as file:
        return pq.read_table(file)


def test_what_is_staged_can_be_opened_and_is_one_runs_own(tmp_path: Path) -> None:
    one, other = folder(tmp_path, "one"), folder(tmp_path, "other")
    first, second = one.stage("a.md\x1f0", TABLE), one.stage("a.md\x1f1", TABLE.slice(1))
    third = other.stage("a.md\x1f0", TABLE.slice(2))
    assert len({first, second, third}) == 3
    assert read(one, first).equals(TABLE)
    assert read(one, second).equals(TABLE.slice(1))
    assert read(other, third).equals(TABLE.slice(2))
    assert one.stage("a.md\x1f0", TABLE.slice(1)) == first
    assert read(one, first).equals(TABLE.slice(1))
    assert len(files(tmp_path)) == 3


def test_dropping_takes_what_it_says_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "units.parquet").write_bytes(b"of the index")
    one, other = folder(tmp_path, "one"), folder(tmp_path, "other")
    asyncio.run(keep(one, "a", "b", "c"))
    one.stage("a", TABLE)
    staged = other.stage("a", TABLE)
    one.drop_staging()
    assert read(other, staged).equals(TABLE)
    assert len(files(tmp_path)) == 5
    one.drop_replies(["a", "c", "unknown"])
    assert [one.replies.of(name).all() != {} for name in "abc"] == [False, True, False]
    other.drop_staging()
    one.drop_replies(["b"])
    assert files(tmp_path) == ["files/units.parquet"]
    assert not (tmp_path / "work").exists()


def test_replies_of_another_extraction_are_left(tmp_path: Path) -> None:
    one, other = folder(tmp_path, results="one"), folder(tmp_path, results="other")
    asyncio.run(keep(one, "a"))
    asyncio.run(keep(other, "a"))
    one.drop_replies(["a"])
    assert (one.replies.of("a").all(), len(other.replies.of("a").all())) == ({}, 1)


def test_dropping_nothing_is_no_error(tmp_path: Path) -> None:
    work = folder(tmp_path / "not there yet")
    work.drop_staging()
    work.drop_replies(["a"])
    assert files(tmp_path) == []


async def keep(work: WorkFolder, *doc_ids: str) -> None:
    reply = Reply(text="{}", finish_reason="stop", model="m", usage=Usage(llm_calls=1), seconds=0.1)
    for doc_id in doc_ids:
        await work.replies.of(doc_id).put("k" * 32, reply)
