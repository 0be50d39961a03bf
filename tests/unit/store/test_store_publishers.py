"""Several runs that publish to one index: one wins, and none is lost without being told."""

from __future__ import annotations

import fcntl
import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import fsspec
import pyarrow.fs as pafs
import pytest

from resin_core.errors import IndexBusyError, IndexCorruptError, StoreError
from resin_core.store import lock
from resin_core.store.filesystem import IndexFolder
from resin_core.store.lock import exclusive
from resin_core.store.manifest import generation_number, read_current, write_current
from resin_core.store.verify import verify
from resin_core.store.writer import IndexWriter


@pytest.fixture
def memory():
    """An object store without locks."""
    filesystem = fsspec.filesystem("memory")
    root = f"/bucket-{os.urandom(4).hex()}"
    yield IndexFolder(pafs.PyFileSystem(pafs.FSSpecHandler(filesystem)), root)
    if filesystem.exists(root):
        filesystem.rm(root, recursive=True)


def _generations(folder: IndexFolder) -> list[str]:
    return [name.removesuffix(".json") for name in folder.names("generations")]


def test_a_run_on_the_served_generation_goes_through(built, stamp):
    writer = IndexWriter(built.uri)
    second = writer.publish(built.entries, stamp, based_on=built.manifest.generation)
    assert read_current(writer.folder) == second.generation


def test_a_first_run_is_based_on_none(tmp_path, corpus_of, parts_of, stamp):
    writer = IndexWriter(tmp_path)
    entries = parts_of(writer, corpus_of(2))
    first = writer.publish(entries, stamp, based_on=None)
    with pytest.raises(IndexBusyError, match=f"published generation {first.generation}"):
        writer.publish(entries, stamp, based_on=None)
    assert _generations(writer.folder) == [first.generation]


def test_a_run_on_a_former_generation_is_refused(built, stamp):
    writer = IndexWriter(built.uri)
    second = writer.publish(built.entries, stamp)
    message = (
        f"another run published generation {second.generation} of the index at {built.uri} while this one worked; run "
        "the same command again: nothing that was paid for is lost"
    )
    with pytest.raises(IndexBusyError, match=f"^{re.escape(message)}$"):
        writer.publish(built.entries, stamp, based_on=built.manifest.generation)
    assert read_current(writer.folder) == second.generation
    assert sorted(_generations(writer.folder)) == sorted([built.manifest.generation, second.generation])
    assert verify(built.uri) == []


def test_an_index_that_was_removed_meanwhile(built, stamp):
    (built.uri / "CURRENT").unlink()
    with pytest.raises(IndexBusyError, match=f"removed generation {built.manifest.generation}"):
        IndexWriter(built.uri).publish(built.entries, stamp, based_on=built.manifest.generation)


def test_a_garbled_pointer_is_not_taken_for_the_base(built, stamp):
    (built.uri / "CURRENT").write_text("?")
    with pytest.raises(IndexCorruptError):
        IndexWriter(built.uri).publish(built.entries, stamp, based_on=built.manifest.generation)
    assert IndexWriter(built.uri).publish(built.entries, stamp).number == 2  # asked for no base, it mends the pointer


@pytest.mark.parametrize("place", ["local", "object store"])
def test_the_base_is_checked_again_after_the_long_part(
    tmp_path, memory, corpus_of, parts_of, stamp, monkeypatch, place
):
    """Another run publishes while FAISS is built: the last moment that no lock covers."""
    writer = IndexWriter(tmp_path if place == "local" else memory)
    entries = parts_of(writer, corpus_of(2))
    first = writer.publish(entries, stamp)
    build = IndexWriter._faiss
    other = []

    def meanwhile(self, *arguments):
        if not other:
            other.append(None)
            other.append(IndexWriter(writer.folder).publish(entries, stamp))
        return build(self, *arguments)

    monkeypatch.setattr(IndexWriter, "_faiss", meanwhile)
    with pytest.raises(IndexBusyError):
        writer.publish(entries, stamp, based_on=first.generation)
    assert read_current(writer.folder) == other[1].generation
    assert sorted(_generations(writer.folder)) == sorted([first.generation, other[1].generation])


def test_on_an_object_store_the_base_is_checked_just_before_the_swap(memory, corpus_of, parts_of, stamp, monkeypatch):
    writer = IndexWriter(memory)
    entries = parts_of(writer, corpus_of(2))
    first = writer.publish(entries, stamp)
    numbered = IndexWriter._numbered

    def meanwhile(self, draft):
        manifest = numbered(self, draft)
        write_current(memory, "g9-0123456789ab")
        return manifest

    monkeypatch.setattr(IndexWriter, "_numbered", meanwhile)
    with pytest.raises(IndexBusyError, match="published generation g9-0123456789ab"):
        writer.publish(entries, stamp, based_on=first.generation)
    # The manifest that was written for nothing is gone too.
    assert _generations(memory) == [first.generation]


def test_of_many_that_began_together_one_wins(built, stamp):
    """Threads of one process: the lock is the open file's, not the process's."""
    barrier = threading.Barrier(6)

    def publish(_number):
        barrier.wait()
        try:
            return IndexWriter(built.uri).publish(built.entries, stamp, based_on=built.manifest.generation)
        except IndexBusyError:
            return None

    with ThreadPoolExecutor(6) as pool:
        won = [manifest for manifest in pool.map(publish, range(6)) if manifest]
    assert len(won) == 1
    assert read_current(IndexFolder.at(built.uri)) == won[0].generation
    assert sorted(_generations(IndexFolder.at(built.uri))) == sorted([built.manifest.generation, won[0].generation])


@pytest.mark.parametrize("place", ["local", "object store"])
def test_numbers_never_collide(tmp_path, memory, corpus_of, parts_of, stamp, place):
    folder = IndexFolder.at(tmp_path) if place == "local" else memory
    entries = parts_of(IndexWriter(folder), corpus_of(2))
    with ThreadPoolExecutor(4) as pool:
        # Stamps differ, so that no two manifests are one file.
        stamps = [stamp.model_copy(update={"models": (str(number),)}) for number in range(8)]
        made = list(pool.map(lambda one: IndexWriter(folder).publish(entries, one), stamps))
    numbers = sorted(manifest.number for manifest in made)
    assert len(set(numbers)) == 8
    assert sorted(generation_number(generation) for generation in _generations(folder)) == numbers
    assert all(a < b for a, b in pairwise(numbers))


def test_a_number_that_another_took_at_the_same_moment_is_given_up(memory, corpus_of, parts_of, stamp, monkeypatch):
    writer = IndexWriter(memory)
    entries = parts_of(writer, corpus_of(2))
    put = IndexWriter._put
    taken = []

    def and_another(self, path, content):
        put(self, path, content)
        if not taken:
            taken.append("generations/g1-aaaaaaaaaaaa.json")
            put(self, taken[0], b"{}")

    monkeypatch.setattr(IndexWriter, "_put", and_another)
    assert writer.publish(entries, stamp).number == 2
    assert sorted(memory.names("generations"))[0] == "g1-aaaaaaaaaaaa.json"
    assert len(memory.names("generations")) == 2


def test_endless_collisions_end(memory, corpus_of, parts_of, stamp, monkeypatch):
    writer = IndexWriter(memory)
    entries = parts_of(writer, corpus_of(1))
    monkeypatch.setattr("resin_core.store.writer.time.sleep", lambda _seconds: None)
    monkeypatch.setattr(IndexWriter, "_numbers", lambda _self: {"a": 1, "b": 2, "c": 2, "d": 3, "e": 3})
    monkeypatch.setattr(IndexWriter, "_next_number", lambda _self: 3)
    with pytest.raises(IndexBusyError, match="too many runs publish"):
        writer.publish(entries, stamp)
    assert memory.names("generations") == []


class TestLock:
    def test_is_let_go_when_its_holder_dies(self, tmp_path):
        child = os.fork()
        if not child:
            held = exclusive(IndexFolder.at(tmp_path))
            held.__enter__()
            os._exit(0)  # without leaving the block
        os.waitpid(child, 0)
        with exclusive(IndexFolder.at(tmp_path), wait_s=0):
            assert (tmp_path / ".lock").exists()

    def test_is_let_go_after_an_error(self, tmp_path):
        with pytest.raises(KeyError), exclusive(IndexFolder.at(tmp_path)):
            raise KeyError
        with exclusive(IndexFolder.at(tmp_path), wait_s=0):
            pass

    def test_two_indexes_do_not_wait_for_each_other(self, tmp_path):
        with exclusive(IndexFolder.at(tmp_path / "a")), exclusive(IndexFolder.at(tmp_path / "b"), wait_s=0):
            pass

    def test_a_disk_without_locks_is_used_without(self, tmp_path, monkeypatch):
        def unsupported(*_args):
            raise OSError(95, "Operation not supported")

        monkeypatch.setattr(lock.fcntl, "flock", unsupported)
        with exclusive(IndexFolder.at(tmp_path), wait_s=0), exclusive(IndexFolder.at(tmp_path), wait_s=0):
            pass

    def test_another_failure_is_told(self, tmp_path, monkeypatch):
        def broken(*_args):
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(lock.fcntl, "flock", broken)
        with (
            pytest.raises(StoreError, match=r"cannot lock .*\.lock: Input/output error"),
            exclusive(IndexFolder.at(tmp_path)),
        ):
            pass

    def test_a_folder_that_cannot_be(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(StoreError, match="cannot open"), exclusive(IndexFolder.at(tmp_path / "file/index")):
            pass

    def test_readers_need_none(self, built):
        with Path(built.uri / ".lock").open("r+") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            assert verify(built.uri) == []
