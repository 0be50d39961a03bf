"""When a run stops itself, and how its budget is shared out. Pure: reports in, verdict out."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from jobs.orders import ActorReport, Verdict
from resin_core.config import IndexingSection, LLMSection
from resin_core.llm.budget import cost_of
from resin_core.records import Usage

KEPT = "what was done is kept, and the same command goes on from there"
_CAUSES = 3


def price_of(settings: IndexingSection, llm: LLMSection) -> Callable[[Usage], float]:
    """Usage as parts of the run's budget (1.0 is all of it): of tokens or of money, whichever is nearer its end."""
    tokens, money = settings.max_llm_tokens, settings.max_cost

    def price(usage: Usage) -> float:
        parts = [0.0]
        if tokens is not None:
            parts.append((usage.prompt_tokens + usage.completion_tokens) / tokens)
        if money is not None:
            parts.append(cost_of(usage, llm) / money)
        return max(parts)

    return price


def of_endpoint(living: Iterable[ActorReport], settings: IndexingSection) -> Verdict:
    """Whether the model is lost: it refuses this run for good, is down, or has only asked for fewer calls too long."""
    known = list(living)
    if fatal := next((report.fatal for report in known if report.fatal), ""):
        return Verdict("fatal", f"{fatal}; {KEPT}")
    # One actor that hears replies shows that there is a model.
    if known and all(report.failing_s > 0 for report in known):
        silent = min(min(report.failing_s, report.silent_s) for report in known)
        if silent >= settings.endpoint_down_s:
            return Verdict("endpoint", f"no reply of the language model for {silent:.0f} s: {known[0].cause}; {KEPT}")
    if known and all(report.refused_s > 0 for report in known):
        silent = min(min(report.refused_s, report.silent_s) for report in known)
        if silent >= settings.refused_s:
            return Verdict(
                "endpoint", f"the language model has only refused for {silent:.0f} s: {known[0].cause}; {KEPT}"
            )
    return Verdict()


def of_yield(reports: Iterable[ActorReport], settings: IndexingSection) -> Verdict:
    """Whether what comes out is worth going on, once `judge_after` documents are finished."""
    known = list(reports)
    failed = sum(report.failed for report in known)
    finished = sum(report.documents for report in known)
    if finished < settings.judge_after:
        return Verdict()
    if failed > settings.max_error_ratio * finished:
        return failures(failed, finished, (cause for report in known for cause in report.causes), settings)
    if not any(report.units for report in known):
        return Verdict(
            "zero-yield",
            f"the first {finished} documents gave not one unit; try another llm.model, or look at the replies to one "
            f"document alone (`resin inspect --rejects` shows them after its run); {KEPT}",
        )
    return Verdict()


def of_run(whole: ActorReport, settings: IndexingSection) -> Verdict:
    """Whether a run that has ended may be published: not when all of it failed, nor too much of it."""
    found = of_yield([whole], settings)
    if not found.stop and whole.failed == whole.documents:
        return failures(whole.failed, whole.documents, whole.causes, settings)
    return found


def failures(failed: int, finished: int, causes: Iterable[str], settings: IndexingSection) -> Verdict:
    """The verdict on a run with too many failed documents."""
    first = "; ".join(list(dict.fromkeys(causes))[:_CAUSES])
    return Verdict(
        "failures",
        f"{failed} of {finished} documents failed (indexing.max_error_ratio is {settings.max_error_ratio:g}); "
        f"first causes: {first}; {KEPT}",
    )


def starved(reports: Iterable[ActorReport], settings: IndexingSection, llm: LLMSection) -> Verdict:
    """Budget verdict: no actor can afford another call, none is under way."""
    known = list(reports)
    if not known or not all(report.starved for report in known):
        return Verdict()
    used = Usage()
    for report in known:
        used += Usage(
            llm_calls=report.llm_calls,
            prompt_tokens=report.prompt_tokens,
            completion_tokens=report.completion_tokens,
        )
    return Verdict("budget", spent(used, settings, llm))


def spent(used: Usage, settings: IndexingSection, llm: LLMSection) -> str:
    """What to tell of a budget that is used up."""
    limits = []
    if settings.max_llm_tokens is not None:
        limits.append(
            f"{used.prompt_tokens + used.completion_tokens:,} of indexing.max_llm_tokens = "
            f"{settings.max_llm_tokens:,} tokens"
        )
    if settings.max_cost is not None:
        limits.append(f"{cost_of(used, llm):.4g} of indexing.max_cost = {settings.max_cost:g}")
    return (
        f"the budget does not allow another call: {' and '.join(limits)} are used up by {used.llm_calls:,} calls; "
        f"nothing was published, {KEPT}"
    )


class Allowances:
    """Shares the budget (1.0) out so that all clients together can never spend more, whenever they hear of it."""

    def __init__(self) -> None:
        self._granted: dict[str, float] = {}
        self._spent: dict[str, float] = {}

    def grant(self, client: str, spent: float) -> float:
        """What this client may have spent in all."""
        self._spent[client] = spent
        rest = max(0.0, 1.0 - sum(self._spent.values()))
        fair = spent + rest / len(self._spent)
        free = 1.0 - sum(granted for other, granted in self._granted.items() if other != client)
        self._granted[client] = max(spent, min(fair, free))
        return self._granted[client]

    def lost(self, client: str) -> None:
        """A client that is gone spends no more; what it held beyond that is free again."""
        if client in self._spent:
            self._granted[client] = self._spent[client]
