"""The commands against an index on a real S3 server: index, ask, search, change, kill, delete, gc."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from resin_core.cli.main import main
from resin_core.store.filesystem import IndexFolder
from tests.integration.indexing_runs import corpus, text_of, write_corpus
from tests.integration.test_job_incremental import wait_for
from tests.scripted_llm import ScriptedServer
from tests.scripted_llm.indexing_replies import play, title_of

if TYPE_CHECKING:
    from tests.s3_server import S3Server

pytest_plugins = ["tests.s3_server"]
pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

Ran = Callable[..., tuple[int, str]]


@pytest.fixture
def resin(capsys: pytest.CaptureFixture[str], scripted_llm: ScriptedServer) -> Ran:
    scripted_llm.script(play)

    def run(*arguments: str) -> tuple[int, str]:
        status = main([*arguments, "--set", f"llm.base_url={scripted_llm.base_url}", "--set", "llm.model=scripted"])
        return status, capsys.readouterr().out

    return run


def test_an_index_on_s3_from_the_first_document_to_the_last(
    tmp_path: Path, resin: Ran, s3: S3Server, scripted_llm: ScriptedServer
) -> None:
    place = s3.uri("tests/whole")
    source = corpus(tmp_path / "c.jsonl", 6)
    status, out = resin("index", str(source), "--index", place, "--json")
    assert status == 0
    assert json.loads(out)["documents"] == 6
    assert resin("verify", "--index", place)[0] == 0
    status, out = resin("ask", "How many tonnes does the Mill 0-1 weigh?", "--index", place, "--json")
    assert status == 0
    answer = json.loads(out)
    assert answer["citations"][0]["doc_id"] in {item["doc_id"] for item in answer["evidence"]}

    texts = {f"d{n:03}": text_of(n) for n in range(6)} | {"d002": text_of(2).replace("3 tonnes", "77 tonnes")}
    scripted_llm.seen.clear()
    status, out = resin("index", str(write_corpus(source, texts)), "--index", place, "--json")
    assert (status, json.loads(out)["reused"]) == (0, 5)
    assert [title_of(seen.body) for seen in scripted_llm.chats] == ["d002"]

    assert "d004" in resin("search", "Station 4-0 weighs", "--index", place)[1]
    status, out = resin("delete", "d004", "--index", place, "--json")
    assert (status, json.loads(out)["deleted"]) == (0, 1)
    assert "d004" not in resin("search", "Station 4-0 weighs", "--index", place)[1]
    assert resin("inspect", "d004", "--index", place)[0] == 1

    folder = IndexFolder.at(place)
    before = len(folder.names("generations"))
    status, out = resin("gc", "--index", place, "--keep", "1", "--grace", "0", "--json")
    assert status == 0
    assert (before, len(folder.names("generations"))) == (3, 1)
    assert resin("verify", "--index", place)[0] == 0
    assert list(folder.files("work")) == []


def test_a_run_killed_half_way_is_invisible_and_taken_up_again(
    tmp_path: Path, resin: Ran, s3: S3Server, scripted_llm: ScriptedServer
) -> None:
    place = s3.uri("tests/killed")
    source = corpus(tmp_path / "c.jsonl", 40)
    scripted_llm.script(play)
    scripted_llm.latency_s = 0.3
    command = [sys.executable, "-m", "resin_core", "index", str(source), "--index", place]
    command += ["--set", f"llm.base_url={scripted_llm.base_url}", "--set", "llm.model=scripted"]
    job = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: len(scripted_llm.chats) >= 16)
    job.kill()
    job.wait()
    assert resin("search", "weighs", "--index", place)[0] == 1, "there is no index yet"
    asked = len({title_of(seen.body) for seen in scripted_llm.chats})
    scripted_llm.latency_s = 0.0
    scripted_llm.seen.clear()
    status, out = resin("index", str(source), "--index", place, "--json")
    assert (status, json.loads(out)["documents"]) == (0, 40)
    # Four calls at once may have been in flight, and as many replies not yet kept.
    assert len(scripted_llm.chats) <= 40 - asked + 8
    assert resin("verify", "--index", place)[0] == 0
