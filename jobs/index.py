"""The indexing job on Ray Data: read -> stage -> extract -> embed -> write -> publish.

The driver sees file names, counts and part entries only. Results of finished documents are kept in the index's
folder, so the same command after a crash pays for nothing twice; readers see the new generation when all of it stands.
"""

from __future__ import annotations

import os
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from jobs import quiet, reuse, rows, stages
from jobs.tally import Tally, followed
from jobs.work import WorkFolder
from resin_core import __version__
from resin_core.config import ResinConfig
from resin_core.encoder import SentenceEncoder
from resin_core.errors import IndexMismatchError, IndexMissingError, ResinError, SourceError
from resin_core.indexing.extract import prompts_used
from resin_core.indexing.keys import extraction_key
from resin_core.indexing.report import IndexProgress, IndexReport, Progress
from resin_core.models.host import ModelHost
from resin_core.readers.sources import SourceFile, list_sources
from resin_core.records import Reject
from resin_core.store.filesystem import IndexFolder
from resin_core.store.manifest import FileEntry, Manifest, Stamp, read_manifest
from resin_core.store.schema import to_table
from resin_core.store.writer import IndexWriter

_RAY_ADVICE = "\nFailed to apply UDF transform after "


def run(
    sources: Sequence[str], index: str, config: ResinConfig, progress: Progress, env: Mapping[str, str] | None = None
) -> IndexReport:
    """One run; see IndexRunner. Starts a local Ray unless one is there or RAY_ADDRESS names one."""
    started = time.monotonic()
    listed = list(list_sources(sources))
    files = [item for item in listed if isinstance(item, SourceFile)]
    rejected = [item for item in listed if isinstance(item, Reject)]
    folder = IndexFolder.at(index)
    current = _current(folder)
    with _ray(config, os.environ if env is None else env), _data_settings(), _readable_errors():
        job = _Job(folder, config, progress, current)
        return job.run(files, rejected, started)


class _Job:
    """One run's state on the driver."""

    def __init__(self, folder: IndexFolder, config: ResinConfig, progress: Progress, current: Manifest | None) -> None:
        self.folder, self.config, self.progress, self.current = folder, config, progress, current
        self.writer = IndexWriter(folder)
        self.key = extraction_key(config.indexing, config.llm.model)
        self.work = WorkFolder(folder, uuid.uuid4().hex[:12], self.key)
        self.entries: list[FileEntry] = []
        self.counts: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()

    def run(self, files: list[SourceFile], rejected: list[Reject], started: float) -> IndexReport:
        import ray

        if rejected:
            self.entries.append(self.writer.write_table("rejects", to_table("rejects", rejected)))
            self.reasons.update(f"{reject.stage}:{reject.reason}" for reject in rejected)
        try:
            paths = self._read(files)
            if not paths and not self.reasons:
                raise SourceError("the sources hold no document and no file that could be one; nothing was changed")
            ray.get(ray.remote(reuse.refuse_duplicates).remote(self.work, paths))
            encoder = SentenceEncoder(self.config.encoder)
            same = self._same_extraction(encoder.name)
            todo = ray.get(ray.remote(reuse.to_do).remote(self.folder, self.current, same, self.work, paths))
            self.counts["reused"] = self.counts["read"] - len(todo)
            if len(todo):
                self._extract(paths, todo, encoder.dimension)
            manifest = self._publish(todo, encoder)
        finally:
            self.work.drop_staging()
        self.work.drop_all()
        return self._report(manifest, time.monotonic() - started)

    def _read(self, files: list[SourceFile]) -> list[str]:
        import ray

        if not files:
            return []
        listed = [{"file": file.model_dump_json()} for file in files]
        dataset = ray.data.from_items(listed, override_num_blocks=min(len(listed), 64)).map_batches(
            stages.Read,
            fn_constructor_args=(self.work, self.writer, self.config.indexing),
            batch_size=16,
            batch_format="pyarrow",
            compute=ray.data.ActorPoolStrategy(min_size=1, max_size=2),
            num_cpus=1,
        )
        paths = []
        for row in dataset.iter_rows():
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

        settings = self.config.indexing
        with ModelHost(self.config.llm, self._model_progress) as host:
            wanted = ray.put(todo)
            work = self.work

            def staged(batch: pa.Table) -> Iterator[pa.Table]:
                ids = ray.get(wanted)
                for path in batch.column("path").to_pylist():
                    yield stages.read_staged(work, path, ids)

            tally = ray.remote(num_cpus=0)(Tally).remote()
            share = max(1, host.settings.max_concurrency // settings.llm_actors)
            dataset = (
                ray.data.from_items([{"path": path} for path in paths], override_num_blocks=len(paths))
                .map_batches(staged, batch_size=1, batch_format="pyarrow", num_cpus=0.5)
                .map_batches(
                    stages.Extract,
                    fn_constructor_args=(self.work, host.settings, settings, tally),
                    # Ray Data keeps four async batches of a block going at once.
                    batch_size=-(-share // 4),
                    batch_format="pyarrow",
                    compute=ray.data.ActorPoolStrategy(size=settings.llm_actors, max_concurrent_calls_per_actor=share),
                    num_cpus=0.5,
                )
                .map_batches(
                    stages.Embed,
                    fn_constructor_args=(self.config.encoder,),
                    batch_size=settings.documents_per_task,
                    batch_format="pyarrow",
                    compute=ray.data.ActorPoolStrategy(size=settings.encoder_actors),
                    num_cpus=1,
                )
                .map_batches(
                    stages.Write,
                    fn_constructor_args=(self.writer, dimension),
                    batch_size=settings.documents_per_task,
                    batch_format="pyarrow",
                    compute=ray.data.ActorPoolStrategy(size=1),
                    num_cpus=0.5,
                )
            )
            self._tell(0, 0, len(todo))
            with followed(tally, lambda documents, units: self._tell(documents, units, len(todo))):
                for row in dataset.iter_rows():
                    self._count(row)

    def _tell(self, documents: int, units: int, total: int) -> None:
        self.progress(IndexProgress(stage="extracting", done=documents, total=total, detail=f"{units} units"))

    def _count(self, row: Mapping[str, Any]) -> None:
        self.entries += [stages.entry_of(line) for line in row["entries"]]
        self.kinds.update(row["kinds"])
        self.reasons.update(row["reasons"])
        for name in ("documents", "passages", *rows.COUNTS):
            self.counts[name] += row[name]

    def _publish(self, todo: pa.Array, encoder: SentenceEncoder) -> Manifest:
        import ray

        self.progress(IndexProgress(stage="publishing", done=0, total=1))
        entries = list(self.entries)
        models = {self.config.llm.model}
        if self.current is not None:
            new_rejects = [entry for entry in self.entries if entry.name == "rejects"]
            kept = ray.remote(reuse.kept_entries).remote(self.writer, self.current, todo, new_rejects)
            entries += ray.get(kept)
            models |= set(self.current.stamp.models)
        stamp = Stamp(
            encoder=encoder.name,
            dimension=encoder.dimension,
            prompts={**prompts_used(self.config.indexing), "extraction": self.key},
            models=tuple(sorted(models)),
            resin_version=__version__,
        )
        manifest = self.writer.publish(entries, stamp)
        self.progress(IndexProgress(stage="publishing", done=1, total=1, detail=manifest.generation))
        return manifest

    def _same_extraction(self, encoder: str) -> bool:
        if self.current is None:
            return False
        stamp = self.current.stamp
        if stamp.encoder != encoder:
            raise IndexMismatchError(
                f"index at {self.folder} was made with encoder {stamp.encoder!r}, the configuration says {encoder!r}; "
                "set encoder.model to the former, or index into another folder"
            )
        return stamp.prompts.get("extraction") == self.key

    def _model_progress(self, done: int, total: int, label: str) -> None:
        self.progress(IndexProgress(stage=label, done=done, total=total, detail="bytes"))

    def _report(self, manifest: Manifest, seconds: float) -> IndexReport:
        counts = self.counts
        return IndexReport(
            documents=counts["documents"],
            passages=counts["passages"],
            units=dict(sorted(self.kinds.items())),
            rejects=dict(sorted(self.reasons.items())),
            reused=counts["reused"],
            resumed=counts["resumed"],
            llm_calls=counts["llm_calls"],
            prompt_tokens=counts["prompt_tokens"],
            completion_tokens=counts["completion_tokens"],
            seconds=round(seconds, 2),
            generation=manifest.generation,
            total_documents=manifest.counts.get("documents", 0),
            total_passages=manifest.counts.get("passages", 0),
            total_units=manifest.counts.get("units", 0),
            source_tokens=counts["source_tokens"],
        )


def _current(folder: IndexFolder) -> Manifest | None:
    try:
        return read_manifest(folder)
    except IndexMissingError:
        return None


@contextmanager
def _ray(config: ResinConfig, env: Mapping[str, str]) -> Iterator[None]:
    import ray

    if ray.is_initialized():
        yield
        return
    with quiet.starting():
        if address := env.get("RAY_ADDRESS"):
            _connect(address)
        else:
            # Logical CPUs: stages that wait for the model must not keep others from being placed.
            ray.init(
                num_cpus=config.indexing.cpus or max(4, os.cpu_count() or 1),
                log_to_driver=False,
                include_dashboard=False,
                logging_level="ERROR",
            )
    try:
        quiet.data_messages()
        yield
    finally:
        ray.shutdown()


@contextmanager
def _data_settings() -> Iterator[None]:
    """Ray Data as the job needs it, also in a process whose Ray and settings are someone else's."""
    import ray

    context = ray.data.DataContext.get_current().copy()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    # Wrapped by Ray Data, a stage's error would lose its class on the way here: causes are not pickled.
    context.raise_original_map_exception = True
    with ray.data.DataContext.current(context):
        yield


def _connect(address: str) -> None:
    import ray

    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ResinError(
            f"no Ray cluster answers at RAY_ADDRESS={address!r} ({error}); unset it for a local one"
        ) from None


@contextmanager
def _readable_errors() -> Iterator[None]:
    """A stage's own error instead of Ray's wrapping of it."""
    import ray.exceptions

    try:
        yield
    except ray.exceptions.RayTaskError as error:
        cause: BaseException | None = error
        while cause is not None and not (
            isinstance(cause, ResinError) and not isinstance(cause, ray.exceptions.RayError)
        ):
            cause = getattr(cause, "cause", None) or cause.__cause__
        if not isinstance(cause, ResinError):
            raise
        # Ray Data writes advice on its own settings into the message.
        if cause.args and isinstance(cause.args[0], str):
            cause.args = (cause.args[0].partition(_RAY_ADVICE)[0], *cause.args[1:])
        raise cause from None
