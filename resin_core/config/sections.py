"""The sections of a configuration file: every key is a typed, described field, unknown keys are errors."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, SecretStr

from resin_core.config.base import Section
from resin_core.config.serving import ServingSection
from resin_core.records import UnitKind


class IndexSection(Section):
    """Where the index is."""

    uri: str | None = Field(None, description="Folder of the index: a path or a URI of a pyarrow filesystem.")
    keep_generations: int = Field(2, ge=1, description="Newest generations that resin gc keeps; the one served too.")
    gc_grace_s: float = Field(
        86400.0, ge=0, description="Age of an unused file before resin gc frees it; longer than the longest run."
    )


class EmbeddedSection(Section):
    """The language model server that Resin starts itself when no base_url is set."""

    model_path: str | None = Field(None, description="A GGUF file to use instead of the named model.")
    cache_dir: str | None = Field(None, description="Folder for weights; default: resin in the user's cache folder.")
    threads: int | None = Field(None, ge=1, le=256, description="Compute threads; default: the cores, at least one.")
    slots: int = Field(4, ge=1, le=64, description="Requests decoded at once; llm.max_concurrency should match.")
    slot_context_tokens: int = Field(4096, ge=512, description="Context length of each slot, in tokens.")
    start_timeout_s: float = Field(120.0, gt=0, description="How long the server may take to become healthy.")


class VLLMSection(Section):
    """vLLM engines that Resin starts: in the job (indexing.engine vllm), in the endpoint (serving.engine vllm)."""

    model_path: str | None = Field(
        None, description="Folder of the weights on every node, or a hub name; unset: llm.model is the hub name."
    )
    replicas: int = Field(
        1,
        ge=1,
        description="Engines of the job side by side, each with a copy of the model; online: serving.llm.",
    )
    tensor_parallel: int = Field(1, ge=1, description="GPUs over which one engine spreads the model.")
    gpu_memory_share: float = Field(
        0.9,
        gt=0,
        le=1,
        description="Share of a GPU's memory (on CPUs: of the machine's) that an engine takes, weights and cache.",
    )
    max_sequences: int = Field(128, ge=1, description="Requests that one engine decodes at once.")
    batch_size: int = Field(16, ge=1, description="Requests handed over together; their replies are kept together.")
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = Field("auto", description="auto: as the weights say.")
    enforce_eager: bool = Field(False, description="No graph capture: a faster start and less memory, slower decoding.")
    device: Literal["cuda", "cpu"] = Field("cuda", description="cpu needs the CPU build of vLLM; for trials.")
    stall_s: float = Field(900.0, gt=0, description="The job ends when no engine finishes a batch for so long.")

    def arguments(self, context_tokens: int | None) -> dict[str, Any]:
        """Arguments of vLLM's engine. What shares out memory and devices is never left to a default."""
        given: dict[str, Any] = {
            "tensor_parallel_size": self.tensor_parallel,
            "gpu_memory_utilization": self.gpu_memory_share,
            "max_num_seqs": self.max_sequences,
            "enable_prefix_caching": True,
            "enforce_eager": self.enforce_eager,
            "dtype": self.dtype,
        }
        return given if context_tokens is None else given | {"max_model_len": context_tokens}


class RoleSection(Section):
    """Another model for one role of the online path; what is unset is as in llm."""

    base_url: str | None = Field(None, description="Root of its API, ending in /v1; unset: that of llm.")
    model: str | None = Field(None, description="Its name at the endpoint.")
    api_key: SecretStr | None = Field(None, description="Bearer key of its endpoint.")
    max_concurrency: int | None = Field(None, ge=1, le=4096, description="Requests in flight at once.")
    model_path: str | None = Field(
        None,
        description="Folder of its weights, with serving.engine vllm; unset: model is the hub name.",
    )


class LLMSection(Section):
    """The language model: any OpenAI-compatible endpoint, or the embedded server."""

    base_url: str | None = Field(None, description="Root of an OpenAI-compatible API, ending in /v1; unset: embedded.")
    model: str = Field(
        "qwen2.5-coder-1.5b-instruct", description="Model name at the endpoint, or of the embedded server."
    )
    api_key: SecretStr | None = Field(None, description="Bearer key of the endpoint.")
    max_concurrency: int = Field(4, ge=1, le=4096, description="Requests in flight at once.")
    request_timeout_s: float = Field(300.0, gt=0, description="Longest wait for one whole reply.")
    connect_timeout_s: float = Field(10.0, gt=0, description="Longest wait for a connection.")
    max_retries: int = Field(4, ge=0, le=20, description="Further tries after an error that may pass.")
    backoff_base_s: float = Field(0.5, gt=0, description="First pause between tries; doubles each time, with jitter.")
    backoff_max_s: float = Field(30.0, gt=0, description="Longest pause between tries, Retry-After included.")
    context_tokens: int | None = Field(None, ge=512, description="Context length; unset: what the server says.")
    seed: int = Field(7, description="Sampling seed sent with each call.")
    prompt_price: float = Field(0.0, ge=0, description="Price of a million prompt tokens, in the unit of max_cost.")
    completion_price: float = Field(0.0, ge=0, description="Price of a million completion tokens.")
    planner: RoleSection = RoleSection()
    composer: RoleSection = RoleSection()
    embedded: EmbeddedSection = EmbeddedSection()
    vllm: VLLMSection = VLLMSection()

    def for_role(self, role: Literal["planner", "composer"]) -> LLMSection:
        """The settings of the model that a role uses; a key is not sent to another endpoint than its own."""
        own = {name: value for name, value in getattr(self, role) if value is not None}
        path = own.pop("model_path", None)
        if path is not None or own.get("model", self.model) != self.model:
            own["vllm"] = self.vllm.model_copy(update={"model_path": path})
        if "base_url" in own:
            own.setdefault("api_key", None)
        return self.model_copy(update=own)


class EncoderSection(Section):
    """The text encoder (RESIN appendix A.5)."""

    model: str = Field("all-MiniLM-L6-v2", description="Packaged name, a folder, or a hub name.")
    device: str = Field("cpu", description="cpu, cuda or cuda:N.")
    precision: Literal["fp32", "bf16"] = Field("fp32", description="bf16 runs under autocast.")
    batch_size: int = Field(64, ge=1, description="Texts encoded together.")
    gpus: float = Field(
        0.0, ge=0, le=1, description="GPU, or share of one, that an embedding actor of the job asks Ray for."
    )
    gpu_memory_gib: float = Field(2.0, gt=0, description="GPU memory that an embedding actor needs at most.")


class IndexingSection(Section):
    """The indexing job."""

    engine: Literal["endpoint", "vllm"] = Field(
        "endpoint", description="Who answers the calls: the endpoint of llm, or vLLM engines inside the job."
    )
    window_sentences: int = Field(10, ge=2, le=200, description="Sentences of a long document shown in one call.")
    window_chars: int = Field(4000, ge=200, description="Characters of a long document shown in one call, at most.")
    single_call: bool = Field(True, description="One call for passages and units of a window, instead of two.")
    max_sentence_chars: int = Field(1200, ge=80, description="Longer sentences are cut at white space.")
    max_units_per_sentence: int = Field(2, ge=1, le=10, description="Cap of units asked for, times sentences shown.")
    repair_attempts: int = Field(1, ge=0, le=3, description="Further tries after a reply that does not fit.")
    max_document_bytes: int = Field(64_000_000, ge=1000, description="A larger file or record is rejected.")
    documents_per_task: int = Field(64, ge=1, description="Documents embedded together.")
    documents_per_part: int = Field(128, ge=1, description="Documents whose rows share one part file of each table.")
    llm_actors: int = Field(1, ge=1, description="Extraction actors; each keeps its share of llm.max_concurrency.")
    encoder_actors: int = Field(1, ge=1, description="Embedding actors.")
    cpus: int | None = Field(None, ge=1, description="CPUs of the local Ray; unset: what the machine has, at least 2.")
    llm_resources: dict[str, float] = Field(
        default_factory=dict, description="Ray resources that an extraction actor asks for beside its CPU."
    )
    encoder_resources: dict[str, float] = Field(
        default_factory=dict, description="Ray resources that an embedding actor asks for beside its CPU."
    )
    sources: tuple[str, ...] = Field((), description="What to index when a command names no source.")
    call_attempts: int = Field(
        2, ge=1, le=10, description="Rounds of tries for a call that fails while others do not, before it is rejected."
    )
    endpoint_down_s: float = Field(45.0, gt=0, description="A model that is down for so long stops the job.")
    refused_s: float = Field(600.0, gt=0, description="A model that only refuses (429) for so long stops the job.")
    max_error_ratio: float = Field(0.2, ge=0, le=1, description="A larger share of failed documents stops the job.")
    judge_after: int = Field(20, ge=1, description="Documents before error ratio and zero yield are judged.")
    max_llm_tokens: int | None = Field(None, ge=1, description="Tokens that one run may use; then it stops, resumably.")
    max_cost: float | None = Field(None, gt=0, description="Money that one run may use, at the prices of llm.*_price.")
    stop_grace_s: float = Field(25.0, ge=0, description="After SIGTERM, how long calls in flight may take to end.")


class RetrievalSection(Section):
    """Candidates per hop and what the composer may see (RESIN section 3.5)."""

    device: Literal["cpu", "cuda"] = Field("cpu", description="Where vectors are searched; cuda needs faiss-gpu.")
    top_k: int = Field(10, ge=1, le=1000, description="Units kept per hop.")
    kinds: tuple[UnitKind, ...] = Field((), description="Only these unit kinds; empty: all.")
    min_score: float = Field(0.2, ge=-1, le=1, description="Units with a lower cosine are no candidates.")
    min_share: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Passages whose best unit scores less than this share of its hop's best are not packed.",
    )
    max_passages: int | None = Field(None, ge=1, description="Passages the composer sees at most; unset: no limit.")
    evidence_tokens: int = Field(1600, ge=50, description="Evidence budget of the composer, in tokens.")


class PlannerSection(Section):
    """Question planning (RESIN section 3.5)."""

    max_hops: int = Field(4, ge=1, le=16, description="Hops of a plan, at most.")
    decompose: bool = Field(True, description="Off: the question itself is the only hop.")
    include_question: bool = Field(True, description="The question itself takes a hop that the plan left free.")


class ResinSection(Section):
    """Settings of the resin strategy."""

    select: Literal["auto", "always", "never"] = Field(
        "auto", description="Source selection: auto asks the model only when more was found than the budget holds."
    )
    hop_solvers: Literal["auto", "always", "never"] = Field(
        "auto", description="Answer each hop for the audit, beside composition: auto unless the model is embedded."
    )
    derivation: Literal["auto", "always", "never"] = Field(
        "auto", description="Facts, sums and comparisons before the answer: auto when the question needs numbers."
    )


class StrategiesSection(Section):
    """One block per strategy."""

    default: str = Field("resin", description="Strategy used when none is named.")
    max_question_chars: int = Field(8000, ge=10, description="A longer question is refused.")
    deadline_s: float = Field(600.0, gt=0, description="Longest time for one answer.")
    resin: ResinSection = ResinSection()


class ResinConfig(Section):
    """The whole configuration."""

    index: IndexSection = IndexSection()
    llm: LLMSection = LLMSection()
    encoder: EncoderSection = EncoderSection()
    indexing: IndexingSection = IndexingSection()
    retrieval: RetrievalSection = RetrievalSection()
    planner: PlannerSection = PlannerSection()
    strategies: StrategiesSection = StrategiesSection()
    serving: ServingSection = ServingSection()
