import os
from pathlib import Path

import pytest

from resin_core.errors import SourceError
from resin_core.readers.sources import SourceFile, SourceKind, list_sources
from resin_core.records import Reject


def write(path: Path, text: str = "Some text.") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def listed(*sources: Path) -> tuple[list[SourceFile], list[Reject]]:
    found = list(list_sources([str(source) for source in sources]))
    return (
        [entry for entry in found if isinstance(entry, SourceFile)],
        [entry for entry in found if isinstance(entry, Reject)],
    )


def test_a_folder_is_walked_in_order_without_hidden_files(tmp_path: Path) -> None:
    for name in ("b/z.md", "b/a.TXT", "a.jsonl", ".hidden.txt", ".git/x.txt", "c.parquet", "b/deep/er/d.htm"):
        write(tmp_path / name)
    files, rejects = listed(tmp_path)
    assert [(file.doc_id, file.kind) for file in files] == [
        ("a.jsonl", SourceKind.JSONL),
        ("b/a.TXT", SourceKind.TEXT),
        ("b/deep/er/d.htm", SourceKind.HTML),
        ("b/z.md", SourceKind.MARKDOWN),
        ("c.parquet", SourceKind.PARQUET),
    ]
    assert rejects == []
    assert files[0].path == str(tmp_path / "a.jsonl")
    assert files[0].size_bytes == len("Some text.")


def test_a_named_file_has_its_name_as_id_and_is_listed_once(tmp_path: Path) -> None:
    path = write(tmp_path / "deep" / "n.pdf")
    files, _ = listed(path, path)
    assert [(file.doc_id, file.kind) for file in files] == [("n.pdf", SourceKind.PDF)]


@pytest.mark.parametrize("name", ["missing.txt", "missing-folder", "nul\x00.txt"])
def test_a_missing_source_is_an_error_before_anything_is_listed(tmp_path: Path, name: str) -> None:
    write(tmp_path / "a.txt")
    with pytest.raises(SourceError, match="source"):
        list_sources([str(tmp_path), str(tmp_path / name)])


def test_the_empty_string_is_no_source() -> None:
    with pytest.raises(SourceError, match="empty string"):
        list_sources([""])


def test_an_unknown_type_is_an_error_when_named_and_a_reject_in_a_folder(tmp_path: Path) -> None:
    path = write(tmp_path / "a.xyz")
    with pytest.raises(SourceError, match=r"'\.xyz'.*\.docx"):
        list_sources([str(path)])
    files, rejects = listed(tmp_path)
    assert files == []
    assert [(r.doc_id, r.uri, r.stage, r.reason) for r in rejects] == [("a.xyz", str(path), "read", "unsupported-type")]


def test_a_folder_named_like_a_file_is_a_folder(tmp_path: Path) -> None:
    write(tmp_path / "x.txt" / "in.md")
    assert [file.doc_id for file in listed(tmp_path)[0]] == ["x.txt/in.md"]
    assert [file.doc_id for file in listed(tmp_path / "x.txt")[0]] == ["in.md"]


def test_links_in_a_circle_and_broken_ones_are_rejected(tmp_path: Path) -> None:
    write(tmp_path / "sub" / "a.txt")
    (tmp_path / "loop.txt").symlink_to(tmp_path / "loop.txt")
    (tmp_path / "broken.txt").symlink_to(tmp_path / "gone.txt")
    (tmp_path / "sub" / "up").symlink_to(tmp_path)
    files, rejects = listed(tmp_path)
    assert [file.doc_id for file in files] == ["sub/a.txt"]
    assert [(reject.doc_id, reject.reason) for reject in rejects] == [
        ("broken.txt", "unreadable"),
        ("loop.txt", "unreadable"),
        ("sub/up", "linked-folder"),
    ]
    with pytest.raises(SourceError, match="cannot be read"):
        list_sources([str(tmp_path / "loop.txt")])


def test_a_linked_file_and_a_linked_root_are_read(tmp_path: Path) -> None:
    target = write(tmp_path / "real" / "a.txt")
    (tmp_path / "real" / "b.txt").symlink_to(target)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert [file.doc_id for file in listed(tmp_path / "link")[0]] == ["a.txt", "b.txt"]


def test_a_pipe_is_rejected_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    _, rejects = listed(tmp_path)
    assert [(reject.reason, reject.detail) for reject in rejects] == [("unreadable", "not a regular file")]
    with pytest.raises(SourceError, match="neither a file nor a folder"):
        list_sources([str(tmp_path / "pipe.txt")])


def test_an_unreadable_folder_is_rejected_and_the_rest_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a" / "x.txt")
    write(tmp_path / "b" / "y.txt")
    real = os.listdir

    def listdir(path: Path) -> list[str]:
        if Path(path).name == "a":
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "listdir", listdir)
    files, rejects = listed(tmp_path)
    assert [file.doc_id for file in files] == ["b/y.txt"]
    assert [(reject.doc_id, reject.reason, reject.detail) for reject in rejects] == [
        ("a", "unreadable", "Permission denied")
    ]


def test_a_name_that_is_no_unicode_is_rejected(tmp_path: Path) -> None:
    raw = os.path.join(os.fsencode(tmp_path), b"caf\xe9.txt")  # noqa: PTH118 - bytes
    with open(raw, "wb") as stream:  # noqa: PTH123
        stream.write(b"x")
    files, rejects = listed(tmp_path)
    assert files == []
    assert [(reject.doc_id, reject.reason) for reject in rejects] == [("caf\ufffd.txt", "unreadable")]
    with pytest.raises(SourceError, match="not valid Unicode"):
        list_sources([os.fsdecode(raw)])


def test_a_path_too_long_for_an_id_is_rejected(tmp_path: Path) -> None:
    write(tmp_path.joinpath(*["d" * 200] * 6) / "a.txt")
    files, rejects = listed(tmp_path)
    assert files == []
    assert [reject.reason for reject in rejects] == ["id-too-long"]


def test_the_same_reject_has_the_same_id(tmp_path: Path) -> None:
    write(tmp_path / "a.xyz")
    write(tmp_path / "b.xyz")
    first, second = listed(tmp_path)[1]
    assert first.reject_id != second.reject_id
    assert listed(tmp_path)[1] == [first, second]
