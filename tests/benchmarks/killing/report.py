"""The outcome as JSON and as a table."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.benchmarks.killing.killer import KINDS
from tests.benchmarks.killing.runs import JobRun, Outcome


def as_json(outcome: Outcome) -> dict[str, Any]:
    """All numbers of the experiment."""
    problems = outcome.problems()
    plan = outcome.plan
    return {
        "documents": plan.documents,
        "seed": plan.seed,
        "stored_within_s": plan.stored_within_s,
        "counts": outcome.counts,
        "undisturbed": _job(outcome.reference),
        "jobs": [_job(job) for job in outcome.jobs],
        "kills_by_kind": dict(Counter(kill.kind for job in outcome.jobs for kill in job.kills)),
        "driver_restarts": sum(job.starts - 1 for job in outcome.jobs),
        "calls": sum(job.account.calls for job in outcome.jobs),
        "repeated_calls": sum(job.account.paid_twice for job in outcome.jobs),
        "max_repeated_per_kill": max((most for job in outcome.jobs for most in job.account.repeated), default=0),
        "problems": problems,
    }


def as_text(outcome: Outcome) -> str:
    """The table for people, with what the numbers mean."""
    value = as_json(outcome)
    kinds = value["kills_by_kind"]
    lines = [
        "index: " + ", ".join(f"{rows:,} {name}" for name, rows in value["counts"].items()),
        f"undisturbed: {outcome.reference.seconds:.0f} s, {outcome.reference.account.calls:,} calls",
        "kills: " + ", ".join(f"{kinds.get(kind, 0)} {kind}" for kind in KINDS) + f"; jobs: {len(outcome.jobs)}",
        "",
        f"{'job':>4} {'seconds':>8} {'kills':>6} {'starts':>7} {'fell':>5} {'calls':>7} {'repeated':>9} "
        f"{'asked anew':>11} {'in flight at kills':>19} {'max repeated/kill':>18}  index",
    ]
    for at, job in enumerate(outcome.jobs, start=1):
        calls = job.account
        lines.append(
            f"{at:>4} {job.seconds:>8.0f} {len(job.kills):>6} {job.starts:>7} {len(job.fell):>5} {calls.calls:>7,} "
            f"{calls.paid_twice:>9,} {len(calls.repeats) - calls.paid_twice:>11,} {sum(calls.in_flight):>19,} "
            f"{max(calls.repeated, default=0):>18,}  {_verdict(job)}"
        )
    lines += [
        "",
        "repeated: answered in full before and asked again; asked anew: asked before, but never answered in full.",
        "in flight: begun before a kill had taken full effect, and not ended "
        f"{outcome.plan.stored_within_s:g} s or more before it.",
    ]
    return "\n".join([*lines, *(f"OFF: {problem}" for problem in value["problems"])])


def _job(job: JobRun) -> dict[str, Any]:
    calls = job.account
    return {
        "index": str(job.index),
        "seconds": round(job.seconds, 1),
        "finished": job.finished,
        "starts": job.starts,
        "fell": job.fell,
        "calls": calls.calls,
        "distinct_calls": calls.distinct,
        "repeated_calls": calls.paid_twice,
        "asked_anew": len(calls.repeats) - calls.paid_twice,
        "torn_log_lines": calls.torn_lines,
        "verdict": _verdict(job),
        "problems": job.problems(),
        "kills": [
            {
                "kind": kill.kind,
                "victim": kill.victim,
                "at_s": round(kill.at_s, 3),
                "settled_after_s": round(kill.settled_s - kill.at_s, 3),
                "in_flight": calls.in_flight[at],
                "repeated": calls.repeated[at],
            }
            for at, kill in enumerate(job.kills)
        ],
    }


def _verdict(job: JobRun) -> str:
    if not job.finished:
        return "not finished"
    return "differs" if job.unequal else "unsound" if job.unsound else "equal"
