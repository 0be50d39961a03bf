"""Source files as blocks: none lost, none too large, rejects set aside."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs import sources
from jobs.sources import Listed
from resin_core.errors import SourceError
from resin_core.readers.sources import SourceFile
from resin_core.store.parts import read_part
from resin_core.store.writer import IndexWriter


def files_of(listed: Listed) -> list[list[SourceFile]]:
    return [
        [SourceFile.model_validate_json(line) for line in block.column("file").to_pylist()] for block in listed.blocks()
    ]


def test_files_come_in_blocks_bounded_by_number_and_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(7):
        (tmp_path / f"{number}.txt").write_text("x" * (10 if number < 5 else 60))
    monkeypatch.setattr(sources, "_BLOCK_FILES", 3)
    monkeypatch.setattr(sources, "_BLOCK_BYTES", 80)
    blocks = files_of(Listed([str(tmp_path)]))
    assert [[file.doc_id for file in block] for block in blocks] == [
        ["0.txt", "1.txt", "2.txt"],
        ["3.txt", "4.txt", "5.txt"],
        ["6.txt"],
    ]


def test_blocks_are_given_once(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    listed = Listed([str(tmp_path)])
    assert len(list(listed.blocks())) == 1
    assert list(listed.blocks()) == []


def test_what_cannot_be_read_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / "a.xyz").write_text("x")
    listed = Listed([str(tmp_path)])
    assert files_of(listed) == []
    assert listed.reasons == {"read:unsupported-type": 1}
    writer = IndexWriter(tmp_path / "index")
    (entry,) = listed.write_rejects(writer)
    assert read_part(writer.folder, entry).column("doc_id").to_pylist() == ["a.xyz"]


def test_files_named_again_keep_their_ids(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.txt"
    path.parent.mkdir()
    path.write_text("x")
    (block,) = files_of(Listed.again({str(path): "deep/a.txt"}))
    assert [(file.doc_id, file.path) for file in block] == [("deep/a.txt", str(path))]


def test_an_unknown_source_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="does not exist"):
        Listed([str(tmp_path / "nothing")])
