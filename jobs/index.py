"""The indexing job on Ray Data: read -> stage -> extract -> embed -> write -> publish.

The driver sees file names, counts and part entries only. Every reply of the model is kept in the index's folder as it
comes, so the same command after a crash pays for nothing twice; readers see the new generation when all of it stands.
"""

from __future__ import annotations

import os
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import pyarrow as pa

from jobs import former, gpu_budget, pipeline, policy, reuse, session, stages, vllm_rounds
from jobs.orders import Verdict
from jobs.pipeline import Pipeline
from jobs.rows import COUNTS
from jobs.sources import Listed
from jobs.stopping import Stopping, on_sigterm
from jobs.watch import Watch, followed
from jobs.work import WorkFolder
from resin_core import __version__
from resin_core.config import EncoderSection, ResinConfig
from resin_core.encoder import SentenceEncoder, shape_of
from resin_core.errors import (
    BudgetError,
    IndexMismatchError,
    IndexMissingError,
    JobError,
    LLMError,
    LLMUnavailableError,
    ResinError,
    SourceError,
    StoppedError,
)
from resin_core.indexing.extract import prompts_used
from resin_core.indexing.keys import extraction_key
from resin_core.indexing.report import IndexProgress, IndexReport, Progress
from resin_core.llm.budget import cost_of
from resin_core.models.host import ModelHost
from resin_core.records import Usage
from resin_core.store.filesystem import IndexFolder
from resin_core.store.manifest import FileEntry, Manifest, Stamp, read_manifest
from resin_core.store.writer import IndexWriter

_STOPS: dict[str, type[ResinError]] = {
    "budget": BudgetError,
    "endpoint": LLMUnavailableError,
    "fatal": LLMError,
    "failures": JobError,
    "zero-yield": JobError,
    "told": StoppedError,
}


def run(
    sources: Sequence[str], index: str, config: ResinConfig, progress: Progress, env: Mapping[str, str] | None = None
) -> IndexReport:
    """One run; see IndexRunner. Starts a local Ray unless one is there or RAY_ADDRESS names one."""
    listed = Listed(sources)
    return run_on(lambda job: job.read(listed), index, config, progress, env)


def run_on(
    read: Callable[[Job], list[str]],
    index: str,
    config: ResinConfig,
    progress: Progress,
    env: Mapping[str, str] | None = None,
) -> IndexReport:
    """A run over the documents that `read` stages; it gives the paths of their parts."""
    started = time.monotonic()
    gpu_budget.check(config, None)
    folder = IndexFolder.at(index)
    current = current_manifest(folder)
    # In this order: ray.init sets a handler of its own, which leaves at once.
    with (
        session.opened(config, os.environ if env is None else env),
        on_sigterm(config.indexing.stop_grace_s) as stopping,
    ):
        return Job(folder, config, progress, current, stopping).run(read, started)


class Job:
    """One run's state on the driver."""

    def __init__(
        self,
        folder: IndexFolder,
        config: ResinConfig,
        progress: Progress,
        current: Manifest | None,
        stopping: Stopping,
    ) -> None:
        self.folder, self.config, self.progress, self.current = folder, config, progress, current
        self.stopping = stopping
        self.writer = IndexWriter(folder)
        self.work = WorkFolder(folder, uuid.uuid4().hex[:12], extraction_key(config.indexing, config.llm.model))
        self.forced: Sequence[str] = ()
        self.blocks: list[Any] = []
        self.entries: list[FileEntry] = []
        self.counts: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()

    def run(self, read: Callable[[Job], list[str]], started: float) -> IndexReport:
        """The whole of it. Raises ResinError kinds; nothing is published then."""
        import ray

        # Looked at in a worker, so that the driver stays light; loading it takes seconds, so only when need be.
        known = shape_of(self.config.encoder)
        encoder = ray.put(known) if known is not None else ray.remote(_encoder).remote(self.config.encoder)
        try:
            paths = read(self)
            if not paths and not self.reasons:
                raise SourceError("the sources hold no document and no file that could be one; nothing was changed")
            ray.get(ray.remote(reuse.refuse_duplicates).remote(self.work, paths))
            name, dimension = ray.get(encoder)
            self._check_encoder(name)
            to_do = ray.remote(reuse.to_do)
            todo = ray.get(to_do.remote(self.folder, self.current, self.work, paths, self.forced))
            self.counts["reused"] = self.counts["read"] - len(todo)
            if len(todo):
                self._extract(paths, todo, dimension)
            manifest = self._publish(todo, Stamp(encoder=name, dimension=dimension, resin_version=__version__))
        finally:
            self.work.drop_staging()
        ray.get(ray.remote(_drop_replies).remote(self.work, todo))
        return self._report(manifest, time.monotonic() - started)

    def read(self, listed: Listed) -> list[str]:
        """Stages the documents of source files; rejects become parts at once."""
        import ray

        self.reasons.update(listed.reasons)
        self.entries += listed.write_rejects(self.writer)
        self.blocks = [ray.put(block) for block in listed.blocks()]
        if not self.blocks:
            return []
        paths = []
        for row in pipeline.read(self.blocks, self.work, self.writer, self.config).iter_rows():
            if row["path"]:
                paths.append(row["path"])
            if row["rejects"]:
                self.entries.append(stages.entry_of(row["rejects"]))
            self.reasons.update(row["reasons"])
            self.counts["read"] += row["documents"]
            self.progress(IndexProgress(stage="reading", done=self.counts["read"], total=0, detail="documents"))
        return sorted(paths)

    def _extract(self, paths: list[str], todo: pa.Array, dimension: int) -> None:
        import ray

        places = former.nothing()
        if self.current is not None:
            find = ray.remote(former.find)
            places = ray.get(find.remote(self.folder, self.current, self.work, paths, todo))
        line = Pipeline(self.config, self.work, self.writer, self.current, ray.put(todo), ray.put(places), dimension)
        settings, llm, node = self.config.indexing, self.config.llm, None
        with ExitStack() as stack:
            if settings.engine == "vllm":
                self._answer(line.staged(paths))
            else:
                host = stack.enter_context(ModelHost(llm, self._model_progress))
                llm = host.settings
                if host.embedded:
                    # An embedded server is reached from its own node only.
                    node = ray.get_runtime_context().get_node_id()
            watch = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(Watch).remote(settings, llm)
            self._drain(line.extracted(paths, llm, watch, node), watch, len(todo))

    def _answer(self, staged: Any) -> None:
        """Engines of the job's own fill the ledger, from which extraction then runs."""
        with self.stopping.draining():
            usage, asked = vllm_rounds.answer(
                staged,
                self.work,
                self.config,
                lambda done, total: self.progress(IndexProgress(stage="answering", done=done, total=total)),
                lambda: self.stopping.reason,
            )
        self.counts.update(usage.model_dump())
        # What extraction finds in the ledger was not all there when the run began.
        self.counts["resumed"] -= asked

    def _drain(self, dataset: Any, watch: Any, total: int) -> None:
        """Runs the stages. Raises what the watch decided, and JobError when documents are missing without one."""
        import ray

        self._tell(0, 0, total)
        with (
            self.stopping.draining(),
            followed(watch, lambda done, units: self._tell(done, units, total), lambda: self.stopping.reason),
        ):
            for row in dataset.iter_rows():
                self._count(row)
        counted = (self.counts["documents"], self.counts["failed"], self.kinds.total())
        verdict: Verdict = ray.get(watch.verdict.remote(*counted))
        ray.kill(watch)
        if verdict.stop and (verdict.stop in ("failures", "zero-yield") or counted[0] != total):
            raise _STOPS[verdict.stop](verdict.message)
        if counted[0] != total:
            missing = f"{total - counted[0]} of {total} documents came back without a result"
            raise JobError(f"{missing}; {policy.KEPT}")

    def _tell(self, documents: int, units: int, total: int) -> None:
        self.progress(IndexProgress(stage="extracting", done=documents, total=total, detail=f"{units} units"))

    def _count(self, row: Mapping[str, Any]) -> None:
        self.entries += [stages.entry_of(line) for line in row["entries"]]
        self.kinds.update(dict(row["kinds"]))
        self.reasons.update(dict(row["reasons"]))
        for name in ("documents", "passages", *COUNTS):
            self.counts[name] += row[name]

    def _publish(self, todo: pa.Array, stamp: Stamp) -> Manifest:
        import ray

        self.progress(IndexProgress(stage="publishing", done=0, total=1))
        models = {self.config.llm.model, *(self.current.stamp.models if self.current is not None else ())}
        stamp = stamp.model_copy(
            update={
                "prompts": prompts_used(self.config.indexing),
                "models": tuple(sorted(models)),
            }
        )
        # In a worker: the vectors of the whole index pass through whoever publishes.
        manifest: Manifest = ray.get(
            ray.remote(reuse.publish).remote(self.writer, self.current, self.entries, todo, stamp, self.blocks)
        )
        self.progress(IndexProgress(stage="publishing", done=1, total=1, detail=manifest.generation))
        return manifest

    def _check_encoder(self, encoder: str) -> None:
        if self.current is not None and self.current.stamp.encoder != encoder:
            raise IndexMismatchError(
                f"index at {self.folder} was made with encoder {self.current.stamp.encoder!r}, the configuration says "
                f"{encoder!r}; set encoder.model to the former, or index into another folder"
            )

    def _model_progress(self, done: int, total: int, label: str) -> None:
        self.progress(IndexProgress(stage=label, done=done, total=total, detail="bytes"))

    def _report(self, manifest: Manifest, seconds: float) -> IndexReport:
        used = Usage(**{name: self.counts[name] for name in Usage.model_fields})
        counted = ("documents", "passages", "reused", *COUNTS)
        return IndexReport(
            **{name: self.counts[name] for name in counted},
            units=dict(sorted(self.kinds.items())),
            rejects=dict(sorted(self.reasons.items())),
            cost=round(cost_of(used, self.config.llm), 6),
            seconds=round(seconds, 2),
            generation=manifest.generation,
            total_documents=manifest.counts.get("documents", 0),
            total_passages=manifest.counts.get("passages", 0),
            total_units=manifest.counts.get("units", 0),
        )


def current_manifest(folder: IndexFolder) -> Manifest | None:
    """The generation that is served, or None where there is no index yet."""
    try:
        return read_manifest(folder)
    except IndexMissingError:
        return None


def _encoder(settings: EncoderSection) -> tuple[str, int]:
    """Name and dimension."""
    encoder = SentenceEncoder(settings)
    return encoder.name, encoder.dimension


def _drop_replies(work: WorkFolder, published: pa.Array) -> None:
    work.drop_replies(published.to_pylist())


if __name__ == "__main__":
    # As the entry point of a RayJob: sources and index come from the configuration, the report goes to standard output.
    import sys

    from resin_core.cli.main import main

    sys.exit(main(["index", "--json", *sys.argv[1:]]))
