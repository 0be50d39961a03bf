import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from resin_core.readers.rejects import ReadDocument
from resin_core.records import Document, Reject

Read = Callable[..., list[Any]]


def lines(*rows: Any) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def parquet(tmp_path: Path, table: pa.Table, **options: Any) -> bytes:
    pq.write_table(table, tmp_path / "made", **options)
    return (tmp_path / "made").read_bytes()


def docs(found: list[Any]) -> list[Document]:
    assert all(isinstance(entry, ReadDocument) for entry in found), found
    return [entry.document for entry in found]


def test_jsonl_rows_become_documents(read: Read, tmp_path: Path) -> None:
    path = str(tmp_path / "c.jsonl")
    found = read(
        "c.jsonl",
        lines(
            {"id": "a", "title": "T", "text": "x {y} \x00\r\n", "uri": "http://u", "metadata": {"k": "v"}, "more": 1},
            {"id": 7, "text": "First\nSecond", "title": None, "metadata": None},
            {"id": "long", "text": "word " * 100, "metadata": {"n": 1, "b": True, "z": None, "o": {"q": [1, "é"]}}},
        ),
    )
    first, second, third = docs(found)
    assert (first.doc_id, first.title, first.text, first.uri) == ("a", "T", "x {y} \x00\r\n", "http://u")
    assert first.metadata == {"k": "v"}
    assert (second.doc_id, second.title, second.uri) == ("7", "First", f"{path}#line=2")
    assert third.title == "long"
    assert third.metadata == {"n": "1", "b": "true", "o": '{"q":[1,"é"]}'}
    assert [entry.place for entry in found] == [f"{path} line {number}" for number in (1, 2, 3)]


@pytest.mark.parametrize(
    ("line", "reason", "doc_id"),
    [
        ("{oops", "invalid-json", ""),
        ("[" * 100_000, "invalid-json", ""),
        ('{"id": ' + "9" * 5000 + ', "text": "x"}', "invalid-json", ""),
        ("[1, 2]", "invalid-record", ""),
        ("null", "invalid-record", ""),
        ('{"text": "x"}', "missing-id", ""),
        ('{"id": "", "text": "x"}', "missing-id", ""),
        ('{"id": " \\t", "text": "x"}', "missing-id", " \t"),
        ('{"id": true, "text": "x"}', "wrong-type", ""),
        ('{"id": 1.5, "text": "x"}', "wrong-type", ""),
        ('{"id": ["a"], "text": "x"}', "wrong-type", ""),
        ('{"id": "' + "i" * 1025 + '", "text": "x"}', "id-too-long", ""),
        ('{"id": ' + "9" * 400 + ', "text": "x"}', "id-too-long", ""),
        ('{"id": "a"}', "missing-text", "a"),
        ('{"id": 5, "text": null}', "missing-text", "5"),
        ('{"id": "a", "text": 3}', "wrong-type", "a"),
        ('{"id": "a", "text": "x", "title": 3}', "wrong-type", "a"),
        ('{"id": "a", "text": "x", "uri": {}}', "wrong-type", "a"),
        ('{"id": "a", "text": "x", "metadata": "m"}', "wrong-type", "a"),
        ('{"id": "a", "text": "x", "metadata": [1]}', "wrong-type", "a"),
        ('{"id": "a", "text": ""}', "empty", "a"),
        ('{"id": "a", "text": " \\n\\u3000"}', "empty", "a"),
    ],
)
def test_a_bad_line_rejects_only_itself(read: Read, tmp_path: Path, line: str, reason: str, doc_id: str) -> None:
    good = '{"id": "good", "text": "x"}'
    before, found, after = read("c.ndjson", f"{good}\n{line}\n\n{good}")
    assert isinstance(found, Reject)
    path = tmp_path / "c.ndjson"
    assert (found.stage, found.reason, found.doc_id, found.uri) == ("read", reason, doc_id, f"{path}#line=2")
    assert f"{path} line 2" in found.detail
    assert found.raw == line[:2000]
    assert [before.place, after.place] == [f"{path} line 1", f"{path} line 4"]


def test_lone_surrogates_are_replaced_in_every_field(read: Read) -> None:
    row = r'{"id": "a\ud800", "title": "t\udfff", "text": "x \ud800 y \ud83d\ude00", "metadata": {"k\ud800": "\udc00"}}'
    (found,) = docs(read("c.jsonl", row))
    assert (found.doc_id, found.title, found.text) == ("a\ufffd", "t\ufffd", "x \ufffd y 😀")
    assert found.metadata == {"k\ufffd": "\ufffd"}
    (bad,) = read("d.jsonl", r'{"id": "a\ud800", "text": "", "x": "\ud800"}')
    assert (bad.doc_id, bad.reason) == ("a\ufffd", "empty")


def test_bytes_that_are_no_utf8_cost_no_more_than_a_note(read: Read) -> None:
    raw = b'\xef\xbb\xbf{"id": "a", "text": "x"}\r\n' + '{"id": "b", "text": "Le café fermé à Noël"}'.encode("latin-1")
    first, second = docs(read("c.jsonl", raw))
    assert (first.text, first.metadata) == ("x", {})
    assert second.text == "Le café fermé à Noël"
    assert "cp1252" in second.metadata["decoding"]


def test_utf16_lines_are_refused_as_a_whole(read: Read) -> None:
    (found,) = read("c.jsonl", '{"id": "a", "text": "x"}\n'.encode("utf-16"))
    assert (found.reason, found.doc_id) == ("wrong-encoding", "c.jsonl")


@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
def test_a_line_over_the_limit_is_skipped_and_the_count_goes_on(read: Read, end: str) -> None:
    good = '{"id": "g", "text": "' + "x" * 979 + '"}'
    assert len(good) == 1002
    long = '{"id": "b", "text": "' + "x" * 3_000_000 + '"}'
    first, second, third = read("c.jsonl", f"{good}\r\n{long}\n{good}{end}", 1002)
    assert isinstance(first, ReadDocument)
    assert (second.reason, second.uri.rpartition("#")[2]) == ("too-large", "line=2")
    assert third.place.endswith("line 3")


def test_an_empty_jsonl_gives_nothing(read: Read) -> None:
    assert read("c.jsonl", b"\n \r\n") == []


def test_jsonl_is_streamed(read: Read, tmp_path: Path) -> None:
    from resin_core.readers.read import read_source
    from resin_core.readers.sources import SourceFile, SourceKind

    path = tmp_path / "big.jsonl"
    with path.open("w") as stream:
        stream.write('{"id": "a", "text": "x"}\n')
        stream.truncate(1 << 40)
    file = SourceFile(path=str(path), kind=SourceKind.JSONL, doc_id="big.jsonl", size_bytes=1 << 40)
    rows = read_source(file, 1000)
    assert isinstance(next(rows), ReadDocument)
    rows.close()  # type: ignore[attr-defined]


def test_parquet_rows_become_documents(read: Read, tmp_path: Path) -> None:
    table = pa.table(
        {
            "id": [1, 2, 3, None],
            "text": ["x {y}\r\n\x00", "First\nSecond", None, "x"],
            "title": pa.array(["T", None, "t", "t"]).dictionary_encode(),
            "metadata": [{"a": "1", "b": None}, {"a": None, "b": 2}, None, None],
            "other": [1.0, 2.0, 3.0, 4.0],
        }
    )
    first, second, third, fourth = read("c.parquet", parquet(tmp_path, table, row_group_size=2))
    path = tmp_path / "c.parquet"
    assert (first.document.doc_id, first.document.title, first.document.text) == ("1", "T", "x {y}\r\n\x00")
    assert (first.document.metadata, first.document.uri) == ({"a": "1"}, f"{path}#row=1")
    assert (second.document.title, second.document.metadata) == ("First", {"b": "2"})
    assert second.place == f"{path} row 2"
    assert (third.reason, third.doc_id, third.uri) == ("missing-text", "3", f"{path}#row=3")
    assert (fourth.reason, fourth.doc_id) == ("missing-id", "")
    assert "text=" in fourth.raw


def test_parquet_of_many_groups_keeps_the_count(read: Read, tmp_path: Path) -> None:
    table = pa.table({"id": [f"d{number}" for number in range(1000)], "text": ["x" * 10] * 1000})
    found = read("c.parquet", parquet(tmp_path, table, row_group_size=300))
    assert [entry.place.rpartition(" ")[2] for entry in found] == [str(number) for number in range(1, 1001)]
    assert docs(found)[-1].doc_id == "d999"


def test_parquet_maps_bytes_and_times(read: Read, tmp_path: Path) -> None:
    import datetime

    table = pa.table(
        {
            "id": pa.array(["a"], pa.large_string()),
            "text": pa.array(["Le café fermé à Noël".encode("latin-1")], pa.binary()),
            "metadata": pa.array([[("k", datetime.date(2020, 1, 2))]], pa.map_(pa.string(), pa.date32())),
        }
    )
    (found,) = docs(read("c.parquet", parquet(tmp_path, table)))
    assert found.text == "Le café fermé à Noël"
    assert found.metadata["k"] == "2020-01-02"
    assert "cp1252" in found.metadata["decoding"]


def test_broken_utf8_in_a_parquet_string_costs_only_a_note(read: Read, tmp_path: Path) -> None:
    broken = pa.array(["Grüße schön".encode() + b"\xff", b"ok"], pa.binary()).view(pa.string())
    first, second = docs(read("c.parquet", parquet(tmp_path, pa.table({"id": ["a", "b"], "text": broken}))))
    assert first.text == "Grüße schön\ufffd"
    assert second.metadata == {}


def test_a_bad_value_in_nested_metadata_rejects_its_row(read: Read, tmp_path: Path) -> None:
    broken = pa.StructArray.from_arrays([pa.array([b"\xff\xfe\xfd", b"ok"], pa.binary()).view(pa.string())], ["k"])
    table = pa.table({"id": ["a", "b"], "text": ["x", "y"], "metadata": broken})
    first, second = read("c.parquet", parquet(tmp_path, table))
    assert (first.reason, first.doc_id) == ("corrupt", "a")
    assert second.document.metadata == {"k": "ok"}


@pytest.mark.parametrize("column", ["id", "text"])
def test_parquet_without_a_needed_column_is_one_reject(read: Read, tmp_path: Path, column: str) -> None:
    table = pa.table({"id": ["a"], "text": ["x"]}).drop_columns(column)
    (found,) = read("c.parquet", parquet(tmp_path, table))
    assert (found.reason, found.doc_id) == ("missing-column", "c.parquet")
    assert repr(column) in found.detail


def test_wrong_column_types_reject_each_row(read: Read, tmp_path: Path) -> None:
    found = read("c.parquet", parquet(tmp_path, pa.table({"id": ["a", "b"], "text": [1, 2]})))
    assert [entry.reason for entry in found] == ["wrong-type", "wrong-type"]


def test_a_parquet_row_over_the_limit_is_rejected(read: Read, tmp_path: Path) -> None:
    table = pa.table({"id": ["a", "b"], "text": ["é" * 600, "x" * 1000]})
    first, second = read("c.parquet", parquet(tmp_path, table), 1000)
    assert (first.reason, second.document.doc_id) == ("too-large", "b")


@pytest.mark.parametrize("content", [b"", b"not parquet at all", b"PAR1 and nothing PAR1"])
def test_what_is_no_parquet_is_corrupt(read: Read, content: bytes) -> None:
    (found,) = read("c.parquet", content)
    assert (found.reason, found.doc_id) == ("corrupt", "c.parquet")


def test_a_damaged_page_in_parquet_is_a_reject(read: Read, tmp_path: Path) -> None:
    rows = pa.table(
        {"id": [f"d{number}" for number in range(500)], "text": [f"text {number}" for number in range(500)]}
    )
    raw = bytearray(parquet(tmp_path, rows, row_group_size=250, compression="zstd"))
    raw[40:400] = b"\xff" * 360
    found = read("c.parquet", bytes(raw))
    assert isinstance(found[-1], Reject)
    assert found[-1].reason == "corrupt"
