from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs import rows
from jobs.work import WorkFolder
from resin_core.errors import StoreError
from resin_core.indexing.document import Indexed

KEY = "ab" + "0" * 30
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


def test_a_result_is_kept_for_a_later_run(tmp_path: Path, indexed: Callable[..., Indexed]) -> None:
    row = rows.indexed_row(KEY, indexed("a", units=2, rejects=1), 9)
    assert folder(tmp_path).kept(KEY) is None
    folder(tmp_path).keep(KEY, row)
    kept = folder(tmp_path, run="a later one").kept(KEY)
    assert kept is not None
    assert kept.equals(row)
    assert folder(tmp_path).kept("ab" + "1" * 30) is None
    assert folder(tmp_path, results="of another prompt").kept(KEY) is None


@pytest.mark.parametrize(
    "broken",
    [
        lambda whole: b"",
        lambda whole: b"PAR1",
        lambda whole: b"no table at all" * 50,
        lambda whole: whole[: len(whole) // 2],
        lambda whole: whole[:-1],
        lambda whole: whole[4:],
        lambda whole: whole[:40] + b"\xff" * 8 + whole[48:],
    ],
)
def test_a_kept_result_that_was_damaged_is_made_again(tmp_path: Path, broken: Callable[[bytes], bytes]) -> None:
    work = folder(tmp_path)
    work.keep(KEY, TABLE)
    (name,) = files(tmp_path)
    file = tmp_path / name
    file.write_bytes(broken(file.read_bytes()))
    assert work.kept(KEY) is None
    work.keep(KEY, TABLE)
    kept = work.kept(KEY)
    assert kept is not None
    assert kept.equals(TABLE)


def test_altered_text_of_a_kept_result_is_never_taken_for_the_result(tmp_path: Path) -> None:
    work = folder(tmp_path)
    table = pa.table({"text": ["all the words that a document has"]})
    work.keep(KEY, table)
    (name,) = files(tmp_path)
    file = tmp_path / name
    whole = file.read_bytes()
    at = whole.index(b"words")
    for place in range(at, at + 5):
        file.write_bytes(whole[:place] + b"#" + whole[place + 1 :])
        assert work.kept(KEY) is None
    file.write_bytes(whole)
    assert work.kept(KEY) is not None


def test_a_folder_in_the_place_of_a_kept_result_is_no_result(tmp_path: Path) -> None:
    work = folder(tmp_path)
    work.keep(KEY, TABLE)
    (name,) = files(tmp_path)
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    assert work.kept(KEY) is None
    with pytest.raises(StoreError, match="cannot write"):
        work.keep(KEY, TABLE)


def test_dropping_takes_what_it_says_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "units.parquet").write_bytes(b"of the index")
    one, other = folder(tmp_path, "one"), folder(tmp_path, "other")
    one.keep(KEY, TABLE)
    one.stage("a", TABLE)
    staged = other.stage("a", TABLE)
    one.drop_staging()
    assert one.kept(KEY) is not None
    assert read(other, staged).equals(TABLE)
    assert len(files(tmp_path)) == 3
    one.drop_all()
    assert files(tmp_path) == ["files/units.parquet"]
    assert not (tmp_path / "work").exists()


def test_dropping_nothing_is_no_error(tmp_path: Path) -> None:
    work = folder(tmp_path / "not there yet")
    work.drop_staging()
    work.drop_all()
    assert files(tmp_path) == []
