"""The job's stages and what each asks of Ray: read -> stage -> extract -> embed -> write, each over Arrow rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from jobs import stages
from jobs.work import WorkFolder
from resin_core.config import LLMSection, ResinConfig
from resin_core.store.manifest import Manifest
from resin_core.store.writer import IndexWriter

_READERS = 2


class Step(NamedTuple):
    """A stage: its class, what it is made with, and the options of `map_batches`."""

    stage: type
    arguments: tuple[Any, ...]
    options: dict[str, Any]


@dataclass(frozen=True)
class Pipeline:
    """Everything that the stages of one run are made with. `todo` and `places` are references in Ray's object store."""

    config: ResinConfig
    work: WorkFolder
    writer: IndexWriter
    current: Manifest | None
    todo: Any
    places: Any
    dimension: int

    def staged(self, paths: Sequence[str]) -> Any:
        """A Dataset of the documents to do, a block a staged part."""
        import ray

        dataset = ray.data.from_items([{"path": path} for path in paths], override_num_blocks=len(paths))
        options = {"compute": ray.data.ActorPoolStrategy(size=1), "batch_size": 1, "num_cpus": 0.25}
        return _mapped(dataset, Step(stages.Staged, (self.work, self.current, self.todo, self.places), options))

    def extracted(self, paths: Sequence[str], llm: LLMSection, watch: Any, node: str | None) -> Any:
        """A Dataset of the parts written and their counts. `node`: where the extraction has to run, if that matters."""
        dataset = self.staged(paths)
        for step in (self._extract(llm, watch, node), self._embed(), self._write()):
            dataset = _mapped(dataset, step)
        return dataset

    def _extract(self, llm: LLMSection, watch: Any, node: str | None) -> Step:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        settings = self.config.indexing
        share = max(1, llm.max_concurrency // settings.llm_actors)
        calls = -(-share // stages.STAGED_ROWS) + 1
        options = {
            # Calls wait for each other within the actor, so that those of the next block are at hand when one ends.
            # Ray Data keeps four async batches of a block going at once.
            "compute": ray.data.ActorPoolStrategy(
                size=settings.llm_actors,
                max_concurrent_calls_per_actor=calls,
                max_tasks_in_flight_per_actor=calls + 1,
            ),
            "batch_size": -(-min(share, stages.STAGED_ROWS) // 4),
            "num_cpus": 0.5,
            "resources": settings.llm_resources,
        }
        if node is not None:
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node, soft=False)
        return Step(stages.Extract, (self.work, llm, settings, watch), options)

    def _embed(self) -> Step:
        import ray

        settings, encoder = self.config.indexing, self.config.encoder
        options = {
            "compute": ray.data.ActorPoolStrategy(size=settings.encoder_actors),
            "batch_size": settings.documents_per_task,
            "num_cpus": 1,
            "num_gpus": encoder.gpus,
            "resources": settings.encoder_resources,
        }
        return Step(stages.Embed, (encoder,), options)

    def _write(self) -> Step:
        import ray

        options = {
            "compute": ray.data.ActorPoolStrategy(size=1),
            "batch_size": self.config.indexing.documents_per_part,
            "num_cpus": 0.5,
        }
        return Step(stages.Write, (self.writer, self.dimension), options)


def read(blocks: Sequence[Any], work: WorkFolder, writer: IndexWriter, config: ResinConfig) -> Any:
    """A Dataset of what was staged from blocks of source files (references)."""
    import ray

    compute = ray.data.ActorPoolStrategy(min_size=1, max_size=min(len(blocks), _READERS))
    options = {"compute": compute, "batch_size": None, "num_cpus": 0.5}
    return _mapped(ray.data.from_arrow_refs(list(blocks)), Step(stages.Read, (work, writer, config.indexing), options))


def _mapped(dataset: Any, step: Step) -> Any:
    return dataset.map_batches(step.stage, fn_constructor_args=step.arguments, batch_format="pyarrow", **step.options)
