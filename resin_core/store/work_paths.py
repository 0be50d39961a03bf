"""Where an index keeps unfinished work: one rule for the job that makes it and for the deletion that removes it."""

from __future__ import annotations

from resin_core.ids import digest

WORK = "work"
STAGED = "staged-"  # a run's documents as read, gone with the run
REPLIES = "replies-"  # of the model, paid for


def replies_of(results_key: str, doc_id: str) -> str:
    """The folder of one document's replies under an extraction key."""
    name = digest((doc_id,))
    return f"{WORK}/{REPLIES}{results_key}/{name[:2]}/{name}"
