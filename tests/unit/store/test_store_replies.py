"""The call ledger's files: what is kept comes back, what was damaged does not."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from resin_core.errors import StoreError
from resin_core.llm.protocol import Reply
from resin_core.records import Usage
from resin_core.store.filesystem import IndexFolder
from resin_core.store.replies import ReplyFolder

KEY = "ab" + "0" * 30
REPLY = Reply(
    text="all the words \x00 \U0001f600",
    finish_reason="stop",
    model="m",
    usage=Usage(llm_calls=1, prompt_tokens=3, completion_tokens=4),
    seconds=1.5,
)


def kept_in(place: Path, results: str = "results") -> ReplyFolder:
    return ReplyFolder(IndexFolder.at(place), results)


def file_in(place: Path) -> Path:
    (file,) = place.rglob("*.json")
    return file


async def test_a_reply_comes_back_in_another_process(tmp_path: Path) -> None:
    replies = kept_in(tmp_path)
    assert await replies.of("a").get(KEY) is None
    await replies.of("a").put(KEY, REPLY)
    later: ReplyFolder = pickle.loads(pickle.dumps(replies))
    assert await later.of("a").get(KEY) == REPLY
    assert later.of("a").all() == {KEY: REPLY}
    assert await later.of("b").get(KEY) is None
    assert await kept_in(tmp_path, "of another prompt").of("a").get(KEY) is None


@pytest.mark.parametrize(
    "broken",
    [
        lambda whole: b"",
        lambda whole: b"{}",
        lambda whole: whole[: len(whole) // 2],
        lambda whole: whole[:-1],
        lambda whole: whole.replace(b"words", b"wards"),
        lambda whole: b"0" * 64 + whole[64:],
        lambda whole: b"\xff" * 100,
    ],
)
async def test_a_damaged_reply_is_none_and_can_be_kept_again(tmp_path: Path, broken: Callable[[bytes], bytes]) -> None:
    replies = kept_in(tmp_path).of("a")
    await replies.put(KEY, REPLY)
    file = file_in(tmp_path)
    file.write_bytes(broken(file.read_bytes()))
    assert await replies.get(KEY) is None
    assert replies.all() == {}
    await replies.put(KEY, REPLY)
    assert await replies.get(KEY) == REPLY


async def test_a_reply_that_cannot_be_kept_is_an_error(tmp_path: Path) -> None:
    replies = kept_in(tmp_path).of("a")
    await replies.put(KEY, REPLY)
    file = file_in(tmp_path)
    file.unlink()
    file.mkdir()
    assert await replies.get(KEY) is None
    with pytest.raises(StoreError, match="cannot write"):
        await replies.put(KEY, REPLY)
