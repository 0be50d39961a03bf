"""The one application of this folder's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

from tests.integration.endpoints import endpoint, ray_for_serving
from tests.integration.guarded.application import Guarded, settings
from tests.integration.indexing_runs import corpus, index
from tests.scripted_llm import ScriptedServer
from tests.scripted_llm.indexing_replies import play


@pytest.fixture(scope="package")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    with ScriptedServer() as model, ray_for_serving():
        model.script(play)
        index(model, corpus(folder / "c.jsonl", 4), folder / "index")
        session = Path(ray._private.worker._global_node.get_session_dir_path())
        with endpoint(model.base_url, folder / "index", settings()) as found:
            yield Guarded(found, model, folder / "index", session / "logs")
