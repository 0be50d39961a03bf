"""Manifests, the pointer and locations."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from pydantic import ValidationError

from resin_core.errors import IndexCorruptError, IndexFormatError, IndexMissingError, StoreError
from resin_core.store.filesystem import IndexFolder
from resin_core.store.manifest import FileEntry, generation_id, manifest_path, read_manifest
from resin_core.store.reader import IndexReader
from resin_core.store.verify import verify


def _rewrite(built, **changes):
    """A manifest with a fitting name and other content, and the pointer to it."""
    values = json.loads(built.manifest.to_bytes()) | changes
    content = json.dumps(values).encode()
    generation = generation_id(1, content)
    (built.uri / manifest_path(generation)).write_bytes(content)
    (built.uri / "CURRENT").write_text(generation + "\n")
    return generation


def test_reads_what_was_published(shared, stamp):
    manifest = read_manifest(IndexFolder.at(shared.uri))
    assert manifest == shared.manifest
    assert manifest.stamp == stamp
    assert manifest.created_at.endswith("+00:00")
    assert read_manifest(IndexFolder.at(shared.uri), manifest.generation) == manifest


def test_the_id_covers_every_field(shared):
    changed = shared.manifest.model_copy(update={"created_at": "2001-01-01T00:00:00+00:00"}).sealed()
    assert changed.generation != shared.manifest.generation


@pytest.mark.parametrize(
    "make", [lambda p: None, lambda p: p.mkdir(), lambda p: (p / "generations").mkdir(parents=True)]
)
def test_no_index(tmp_path, make):
    make(tmp_path / "i")
    with pytest.raises(IndexMissingError, match=r"no index at .*/i; run resin index"):
        IndexReader.open(tmp_path / "i")
    assert [problem.path for problem in verify(tmp_path / "i")] == ["CURRENT"]


@pytest.mark.parametrize("content", [b"", b"g1", b"g1-0123456789ab", b"g1-0123456789ab\r\n", b"../x\n", b"\xff\xfe\n"])
def test_a_pointer_to_nothing_readable(built, content):
    (built.uri / "CURRENT").write_bytes(content)
    with pytest.raises(IndexCorruptError, match="names no generation") as caught:
        IndexReader.open(built.uri)
    assert caught.value.path == "CURRENT"


def test_a_pointer_to_a_missing_generation(built):
    (built.uri / "CURRENT").write_text("g7-0123456789ab\n")
    with pytest.raises(IndexCorruptError, match=r"names generation g7-0123456789ab, but .* is missing") as caught:
        IndexReader.open(built.uri)
    assert caught.value.path == "CURRENT"
    assert [problem.path for problem in verify(built.uri)] == ["CURRENT"]


def test_an_asked_generation_that_is_not_there(shared):
    with pytest.raises(IndexMissingError, match="no generation g7-0123456789ab"):
        IndexReader.open(shared.uri, "g7-0123456789ab")
    with pytest.raises(IndexMissingError, match="is no generation id"):
        IndexReader.open(shared.uri, "../../etc/passwd")


def test_a_newer_format_is_refused_by_name(built):
    _rewrite(built, format_version=9, novelty=True)
    with pytest.raises(IndexFormatError, match=r"index format 9, this Resin reads up to format 1"):
        IndexReader.open(built.uri)


@pytest.mark.parametrize(
    "damage", [lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b"\xff" + b, lambda b: b"[" * 99999]
)
def test_half_written_or_garbled(built, damage):
    path = built.uri / manifest_path(built.manifest.generation)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(IndexCorruptError, match="half written or garbled") as caught:
        IndexReader.open(built.uri)
    assert caught.value.path == manifest_path(built.manifest.generation)


def test_an_altered_manifest_no_longer_fits_its_name(built):
    path = built.uri / manifest_path(built.manifest.generation)
    path.write_bytes(path.read_bytes().replace(b"MiniLM-L6", b"MiniLM-L9"))
    with pytest.raises(IndexCorruptError, match="was altered"):
        IndexReader.open(built.uri)


@pytest.mark.parametrize(
    "changes",
    [{"files": [{"path": "files/../../secret"}]}, {"surprise": 1}, {"number": 0}, {"format_version": "one"}],
)
def test_a_manifest_of_another_shape(built, changes):
    _rewrite(built, **changes)
    with pytest.raises(IndexCorruptError, match="is no manifest"):
        IndexReader.open(built.uri)


def test_json_that_is_no_object(built):
    path = built.uri / manifest_path(generation := generation_id(1, b"[]"))
    path.write_bytes(b"[]")
    (built.uri / "CURRENT").write_text(generation + "\n")
    with pytest.raises(IndexCorruptError, match="is no manifest"):
        IndexReader.open(built.uri)


def test_a_manifest_without_faiss(built):
    kept = [entry for entry in json.loads(built.manifest.to_bytes())["files"] if entry["name"] != "faiss"]
    generation = _rewrite(built, files=kept)
    with pytest.raises(IndexCorruptError, match="0 files named 'faiss'"):
        IndexReader.open(built.uri)
    assert manifest_path(generation) in {problem.path for problem in verify(built.uri)}


def test_entries_cannot_point_outside():
    with pytest.raises(ValidationError):
        FileEntry(name="units", path="files/../x.parquet", sha256="0" * 64, bytes=1, rows=1)


def test_locations(tmp_path, monkeypatch, shared):
    monkeypatch.chdir(shared.uri.parent)
    monkeypatch.setenv("HOME", str(shared.uri.parent))
    for location in ("index", Path("index"), "./index/", "~/index", shared.uri.as_uri(), str(shared.uri)):
        assert IndexReader.open(location).generation == shared.manifest.generation
    odd = tmp_path / "a b%20ü"
    assert IndexFolder.at(odd.as_uri()).root == str(odd)
    copy = pickle.loads(pickle.dumps(IndexFolder.at("index")))
    assert copy.read("CURRENT") == (shared.uri / "CURRENT").read_bytes()


@pytest.mark.parametrize(
    ("location", "message"), [("", "is empty"), ("  ", "is empty"), ("zzz://x/y", "zzz.*give a path")]
)
def test_locations_that_cannot_be(location, message):
    with pytest.raises(StoreError, match=message):
        IndexFolder.at(location)
