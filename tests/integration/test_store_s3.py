"""The index store on a real S3 server: everything a command does, uploads that break, endpoints that are dead."""

from __future__ import annotations

import json
import os
import pickle
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from resin_core.cli.main import main
from resin_core.errors import IndexBusyError, IndexCorruptError, IndexMissingError, InputError, StoreError
from resin_core.ids import content_hash, passage_id, sentence_id, unit_id
from resin_core.records import Document, Passage, ReasoningUnit, Sentence, UnitKind
from resin_core.store import filesystem as filesystem_module
from resin_core.store.filesystem import IndexFolder
from resin_core.store.gc import collect
from resin_core.store.manifest import FileEntry, Stamp, read_current
from resin_core.store.reader import IndexReader
from resin_core.store.revise import delete_documents
from resin_core.store.schema import sentences_table, to_table, vectors_table
from resin_core.store.verify import verify
from resin_core.store.work_paths import replies_of
from resin_core.store.writer import IndexWriter
from tests.cutting_proxy import CuttingProxy

if TYPE_CHECKING:
    from tests.s3_server import S3Server

pytest_plugins = ["tests.s3_server"]

DIMENSION = 8
STAMP = Stamp(encoder="enc", dimension=DIMENSION, resin_version="0.1.0")


def vectors(number: int) -> np.ndarray:
    """Two directions that no other document has."""
    drawn = np.random.default_rng(number).standard_normal((2, DIMENSION)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def write_document(location: Any, number: int) -> list[FileEntry]:
    """One document in part files of its own."""
    doc_id = f"notes/{number} \U0001f600.md"
    pieces = [f"Claim {number} is {i}." for i in range(2)]
    text = "\n".join(pieces)
    starts = [0, len(pieces[0]) + 1]
    sentences = [
        Sentence(sentence_id=sentence_id(doc_id, i), number=i, char_start=start, char_end=start + len(piece))
        for i, (start, piece) in enumerate(zip(starts, pieces, strict=True), start=1)
    ]
    passage = Passage(
        passage_id=passage_id(doc_id, text, 0), doc_id=doc_id, char_start=0, char_end=len(text), text=text,
        sentence_ids=tuple(s.sentence_id for s in sentences),
    )  # fmt: skip
    units = [
        ReasoningUnit(
            unit_id=unit_id(UnitKind.RULE, piece, passage.passage_id), kind=UnitKind.RULE, subject="s", predicate="p",
            canonical_predicate="p", object="o", evidence_quote=piece, char_start=s.char_start, char_end=s.char_end,
            passage_id=passage.passage_id, doc_id=doc_id, sentence_ids=(s.sentence_id,), retrieval_text=piece,
        )
        for s, piece in zip(sentences, pieces, strict=True)
    ]  # fmt: skip
    document = Document(doc_id=doc_id, title=f"T{number}", text=text, uri="u", content_hash=content_hash(text))
    writer = IndexWriter(location)
    return [
        writer.write_table("documents", to_table("documents", [document])),
        writer.write_table("sentences", sentences_table([(doc_id, sentences)])),
        writer.write_table("passages", to_table("passages", [passage])),
        writer.write_table("units", to_table("units", units)),
        writer.write_table("vectors", vectors_table([unit.unit_id for unit in units], vectors(number))),
    ]


def doc_id(number: int) -> str:
    return f"notes/{number} \U0001f600.md"


def publish(uri: Any, *numbers: int, **more: Any) -> str:
    """A generation of these documents; its id."""
    entries = [entry for number in numbers for entry in write_document(uri, number)]
    return IndexWriter(uri).publish(entries, STAMP, **more).generation


def held(reader: IndexReader) -> list[str]:
    return sorted(document.doc_id for document in reader.iter_documents())


@pytest.fixture
def uri(s3: S3Server) -> str:
    """An empty prefix of the bucket."""
    return s3.uri(f"tests/{os.urandom(4).hex()}/deep prefix")


class Breaking:
    """A filesystem on which some uploads break after their first bytes."""

    def __init__(self, filesystem: Any, breaks: Callable[[str], bool]) -> None:
        self._filesystem, self._breaks = filesystem, breaks

    def __getattr__(self, name: str) -> Any:
        return getattr(self._filesystem, name)

    def open_output_stream(self, path: str) -> Any:
        stream = self._filesystem.open_output_stream(path)
        return BreakingStream(stream) if self._breaks(path) else stream


class BreakingStream:
    """Takes half of what it is given, then fails; leaving its block closes the stream, as the real one does."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __enter__(self) -> BreakingStream:
        return self

    def __exit__(self, *_error: object) -> None:
        self._stream.close()

    def write(self, content: Any) -> None:
        self._stream.write(memoryview(content)[: len(memoryview(content)) // 2])
        raise OSError("connection reset by peer")


def test_written_published_opened_searched_and_verified(uri: str) -> None:
    with pytest.raises(IndexMissingError, match="no index at s3:tests/"):
        IndexReader.open(uri)
    generation = publish(uri, 0, 1, 2, based_on=None)
    reader = IndexReader.open(uri)
    assert reader.generation == generation
    assert held(reader) == [doc_id(0), doc_id(1), doc_id(2)]
    for number in range(3):
        found = reader.search(vectors(number), (UnitKind.RULE,), 1)
        assert [row[0].unit.evidence_quote for row in found] == [f"Claim {number} is {i}." for i in range(2)]
        assert reader.document(doc_id(number)).text == f"Claim {number} is 0.\nClaim {number} is 1."
        assert [s.number for s in reader.sentences(doc_id(number))] == [1, 2]
    assert verify(uri) == []


def test_deleted_and_collected(s3: S3Server, uri: str) -> None:
    first = publish(uri, 0, 1, 2)
    folder = IndexFolder.at(uri)
    for path in (f"{replies_of('k', doc_id(1))}/1.json", f"{replies_of('k', doc_id(2))}/1.json"):
        folder.put(path, lambda stream: stream.write(b"paid"))
    before = IndexReader.open(uri)
    report = delete_documents(uri, [doc_id(1)])
    assert (report.former_generation, report.deleted, report.total_documents) == (first, 1, 2)
    assert verify(uri) == []
    reader = IndexReader.open(uri)
    assert held(reader) == [doc_id(0), doc_id(2)]
    shared = {entry.path for entry in reader.manifest.files} & {entry.path for entry in before.manifest.files}
    assert len(shared) == 10
    # A reader that was open before still answers, also with what it reads only now.
    assert before.search(vectors(1), (), 1)[0][0].unit.evidence_quote == "Claim 1 is 0."
    assert before.document(doc_id(1)).doc_id == doc_id(1)
    assert [stored.path for stored in folder.files("work")] == [f"{replies_of('k', doc_id(2))}/1.json"]
    with pytest.raises(InputError, match=r"1 of 1 ids are unknown"):
        delete_documents(uri, [doc_id(1)])
    assert read_current(folder) == report.generation

    assert collect(uri, keep=1, grace_s=3600).files_removed == 0
    collected = collect(uri, keep=1, grace_s=0, now=time.time() + 60, work=True)
    assert collected.generations_kept == (report.generation,)
    # Five parts of the document, and what was made of all of them: rows of units and the vector index.
    assert collected.files_removed == 5 + 2 + 1
    assert {stored.path for stored in folder.files("files")} == {entry.path for entry in reader.manifest.files}
    assert folder.files("work") == []
    assert verify(uri) == []
    assert held(IndexReader.open(uri)) == [doc_id(0), doc_id(2)]


def test_all_deleted(uri: str) -> None:
    publish(uri, 0)
    assert delete_documents(uri, [doc_id(0)]).total_units == 0
    assert IndexReader.open(uri).search(vectors(0), (), 3) == [[], []]
    assert verify(uri) == []


def test_staging_is_dropped_by_age(uri: str) -> None:
    publish(uri, 0)
    folder = IndexFolder.at(uri)
    folder.put("work/staged-a/1.parquet", lambda stream: stream.write(b"text"))
    collect(uri, keep=1, grace_s=3600)
    assert len(folder.files("work")) == 1
    assert collect(uri, keep=1, grace_s=0, now=time.time() + 60).files_removed == 1
    assert folder.files("work") == []


def published_again(uri: str, first: str) -> None:
    """After a publication of documents 1 and 2 that broke: nothing of it is seen, and the same work completes."""
    reader = IndexReader.open(uri)
    assert (reader.generation, held(reader)) == (first, [doc_id(0)])
    assert verify(uri) == []
    there = {stored.path: stored.bytes for stored in IndexFolder.at(uri).files("files")}
    publish(uri, 0, 1, 2)
    assert verify(uri) == []
    assert held(IndexReader.open(uri)) == [doc_id(0), doc_id(1), doc_id(2)]
    # No short object was left under a name that means its content.
    now = {stored.path: stored.bytes for stored in IndexFolder.at(uri).files("files")}
    assert {path: now[path] for path in there} == there


@pytest.mark.parametrize("step", ["files/units", "files/faiss", "files/unit_rows"])
def test_a_stream_that_breaks_and_is_closed_leaves_no_short_object(uri: str, step: str) -> None:
    first = publish(uri, 0)
    folder = IndexFolder.at(uri)
    folder.filesystem = Breaking(folder.filesystem, lambda path: f"/{step}" in path)
    with pytest.raises(StoreError, match="connection reset by peer"):
        publish(folder, 1, 2)
    published_again(uri, first)


@pytest.mark.parametrize("step", ["files/units", "files/faiss", "files/unit_rows", "generations/", "CURRENT"])
def test_a_network_that_breaks_within_an_upload_leaves_the_former_generation(s3: S3Server, uri: str, step: str) -> None:
    first = publish(uri, 0)
    with CuttingProxy(s3.port, f"/deep prefix/{step}") as proxy:
        with pytest.raises(StoreError, match=r"cannot write .*AWS Error"):
            publish(uri.replace(f":{s3.port}", f":{proxy.port}"), 1, 2)
        assert proxy.cuts
    published_again(uri, first)


def test_a_job_that_is_killed_in_the_middle_of_an_upload(s3: S3Server, uri: str) -> None:
    first = publish(uri, 0)
    script = f"""
import os, signal, sys
from tests.integration.test_store_s3 import IndexFolder, publish
put = IndexFolder.put
def killed(self, path, write, size=None):
    def half(stream):
        write(stream)
        os.kill(os.getpid(), signal.SIGKILL)
    put(self, path, half if path.startswith("generations/") else write, size)
IndexFolder.put = killed
publish({uri!r}, 1)
"""
    ended = subprocess.run([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": os.getcwd()}, check=False)  # noqa: PTH109
    assert ended.returncode == -9
    assert read_current(IndexFolder.at(uri)) == first
    assert verify(uri) == []
    publish(uri, 0, 1)
    assert verify(uri) == []


def test_parts_and_manifest_without_the_pointer_are_invisible(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = publish(uri, 0)

    def stop(*_args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("resin_core.store.writer.write_current", stop)
        with pytest.raises(KeyboardInterrupt):
            publish(uri, 0, 1)
    assert len(IndexFolder.at(uri).names("generations")) == 2
    assert held(IndexReader.open(uri)) == [doc_id(0)]
    assert verify(uri) == []
    # It counts as one of the newest, and the one that is served is kept beside it.
    assert first in collect(uri, keep=1, grace_s=0, now=time.time() + 60).generations_kept
    assert held(IndexReader.open(uri)) == [doc_id(0)]


def test_a_part_that_is_unused_and_old_is_written_again(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a collection that runs at the same time sees that it is wanted."""
    folder = IndexFolder.at(uri)
    entry = write_document(uri, 0)[0]
    (before,) = folder.files("files", deep=False)[:1]
    write_document(uri, 0)
    assert folder.files("files", deep=False)[0] == before
    time.sleep(1.1)
    monkeypatch.setattr(filesystem_module, "_FRESH_S", 0.0)
    write_document(uri, 0)
    after = {stored.path: stored for stored in folder.files("files")}
    assert after[before.path].modified_s is not None and before.modified_s is not None
    assert after[before.path].modified_s > before.modified_s
    assert after[entry.path].bytes == entry.bytes


def test_runs_that_publish_one_after_the_other(uri: str) -> None:
    first = publish(uri, 0)
    second = publish(uri, 0, 1, based_on=first)
    with pytest.raises(IndexBusyError, match=f"published generation {second}"):
        publish(uri, 0, 2, based_on=first)
    assert read_current(IndexFolder.at(uri)) == second
    assert len(IndexFolder.at(uri).names("generations")) == 2


def test_numbers_do_not_collide(uri: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda number: publish(uri, number), range(4)))
    assert len({generation.partition("-")[0] for generation in made}) == 4
    assert verify(uri) == []


def test_many_parts_are_looked_up_by_listing(uri: str) -> None:
    publish(uri, *range(4))
    folder = IndexFolder.at(uri)
    paths = [entry.path for entry in IndexReader.open(uri).manifest.files]
    assert len(paths) > 16
    assert folder.sizes([*paths, "files/none", "none/none"]) == {
        **{path: folder.sizes([path])[path] for path in paths},
        "files/none": None,
        "none/none": None,
    }


def test_damage_is_found(uri: str) -> None:
    publish(uri, 0)
    folder = IndexFolder.at(uri)
    entry = IndexReader.open(uri).manifest.entries("units")[0]
    content = bytearray(folder.read(entry.path))
    content[len(content) // 2] ^= 1
    with folder.filesystem.open_output_stream(folder.full(entry.path)) as stream:
        stream.write(bytes(content))
    assert entry.path in {problem.path for problem in verify(uri)}
    folder.remove([entry.path, entry.path])
    with pytest.raises(IndexCorruptError, match="is missing"):
        IndexReader.open(uri)


def test_a_folder_travels_to_workers(uri: str) -> None:
    publish(uri, 0)
    folder = pickle.loads(pickle.dumps(IndexFolder.at(uri)))
    assert held(IndexReader.open(folder)) == [doc_id(0)]
    assert publish(folder, 1).startswith("g2-")


class TestCommands:
    """The command line on the same index."""

    @pytest.fixture
    def resin(self, capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., tuple[int, str, str]]]:
        def run(*arguments: str) -> tuple[int, str, str]:
            capsys.readouterr()
            return main(arguments), *capsys.readouterr()

        return run

    def test_inspect_verify_delete_gc(self, s3: S3Server, uri: str, resin: Callable[..., tuple[int, str, str]]) -> None:
        publish(uri, 0, 1)
        status, out, _ = resin("inspect", "--documents", "--json", "--index", uri)
        assert status == 0
        assert sorted(json.loads(line)["doc_id"] for line in out.splitlines()) == [doc_id(0), doc_id(1)]
        assert resin("verify", "--index", uri)[0] == 0
        status, out, _ = resin("delete", doc_id(0), "--index", uri, "--json")
        assert (status, json.loads(out)["total_documents"]) == (0, 1)
        time.sleep(1.1)  # S3 tells whole seconds
        status, out, _ = resin("gc", "--index", uri, "--keep", "1", "--grace", "0", "--json")
        assert (status, json.loads(out)["files_removed"]) == (0, 7)
        assert resin("verify", "--index", uri)[0] == 0

    def test_credentials_in_the_uri_stay_out_of_all_that_is_printed(
        self,
        s3: S3Server,
        uri: str,
        resin: Callable[..., tuple[int, str, str]],
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        place = IndexFolder.at(uri).root
        for name in s3.environment():
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        with_credentials = s3.uri_with_credentials(place.replace(" ", "%20"))
        printed = [resin("verify", "--index", with_credentials)]
        assert printed[0][0] == 1
        publish(with_credentials, 0)
        folder = IndexFolder.at(with_credentials)
        assert str(folder) == f"s3:{place}"
        printed += [
            resin("verify", "--index", with_credentials),
            resin("delete", "nowhere", "--index", with_credentials, "--debug"),
            resin("inspect", "nothing", "--index", with_credentials, "--debug"),
            resin("gc", "--index", with_credentials + "&nonsense=1", "--debug"),
            resin("verify", "--index", with_credentials.replace("http", "nonsense"), "--debug"),
        ]
        assert [status for status, _, _ in printed] == [1, 0, 1, 1, 1, 1]
        everything = "".join(out + err for _, out, err in printed) + caplog.text
        assert "s3:tests/" in everything
        for secret in (s3.secret_key, s3.access_key, with_credentials.split("@")[0].rpartition(":")[2]):
            assert secret not in everything

    def test_wrong_credentials(
        self, s3: S3Server, uri: str, resin: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        publish(uri, 0)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-secret")
        for command in (("verify",), ("delete", doc_id(0)), ("gc",), ("inspect", "--documents")):
            status, out, err = resin(*command, "--index", uri)
            assert (status, len(err.splitlines())) == (1, 1), err
            assert re.search("ACCESS_DENIED|signature", out + err)
            assert "wrong-secret" not in out + err


def test_a_missing_bucket(s3: S3Server) -> None:
    uri = s3.uri(f"none-{os.urandom(4).hex()}/index")
    with pytest.raises(IndexMissingError):
        IndexReader.open(uri)
    with pytest.raises(StoreError, match="cannot write"):
        publish(uri, 0)
    assert publish(uri + "&allow_bucket_creation=true", 0).startswith("g1-")
    assert verify(uri) == []


@pytest.mark.parametrize("how", ["refuses", "is silent"])
def test_a_dead_endpoint_is_an_error_in_time(s3: S3Server, how: str) -> None:
    with socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))
        if how == "is silent":
            dead.listen(64)  # connects, and never answers
        uri = f"s3://tests/index?endpoint_override=127.0.0.1:{dead.getsockname()[1]}&scheme=http"
        started = time.monotonic()
        with pytest.raises(StoreError, match="cannot be read"):
            IndexReader.open(uri)
        assert time.monotonic() - started < 25
