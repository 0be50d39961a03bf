"""The error tree: drawn as it is, picklable, and with the exit codes of the command line."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Iterator

import pytest

from resin_core import errors
from resin_core.errors import (
    DuplicateIdError,
    IndexCorruptError,
    LLMRateLimitError,
    LLMReplyError,
    LLMRequestError,
    LLMServerError,
    ResinError,
)
from resin_core.records import Usage


def subclasses(kind: type[ResinError]) -> Iterator[type[ResinError]]:
    """A class of the tree and all below it."""
    yield kind
    for child in kind.__subclasses__():
        yield from subclasses(child)


TREE = [kind for kind in subclasses(ResinError) if kind.__module__ == "resin_core.errors"]

WITH_ATTRIBUTES = {
    DuplicateIdError: DuplicateIdError("d1", "a.md", "b.md"),
    IndexCorruptError: IndexCorruptError("units/1.parquet", "units/1.parquet is cut short"),
    LLMRateLimitError: LLMRateLimitError("429 from the endpoint", retry_after_s=2.5),
    LLMReplyError: LLMReplyError("not-json", "the reply is not JSON", "{oops", Usage(llm_calls=2, prompt_tokens=9)),
    LLMRequestError: LLMRequestError("404 from the endpoint", 404),
    LLMServerError: LLMServerError("503 from the endpoint", 503, retry_after_s=1.0),
}


def example(kind: type[ResinError]) -> ResinError:
    """One error of the class, with every attribute set."""
    return WITH_ATTRIBUTES.get(kind) or kind(f"a message of {kind.__name__}")


def test_every_class_with_its_own_init_has_an_example() -> None:
    assert {kind for kind in TREE if "__init__" in vars(kind)} == set(WITH_ATTRIBUTES)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("kind", TREE, ids=lambda kind: kind.__name__)
def test_pickle_keeps_class_message_and_attributes(kind: type[ResinError], protocol: int) -> None:
    error = example(kind)
    back = pickle.loads(pickle.dumps(error, protocol))
    assert type(back) is kind
    assert str(back) == str(error)
    assert back.args == error.args
    assert vars(back) == vars(error)


def test_pickle_keeps_notes_and_a_missing_message() -> None:
    error = LLMServerError("503", 503)
    error.add_note("while extracting d1")
    assert pickle.loads(pickle.dumps(error)).__notes__ == ["while extracting d1"]
    assert pickle.loads(pickle.dumps(ResinError())).args == ()


def test_a_copy_is_apart_from_its_original() -> None:
    error = LLMServerError("503", 503)
    twin = copy.copy(error)
    twin.status = 500
    assert (error.status, twin.status) == (503, 500)


def test_the_tree_in_the_module_docstring_is_the_real_one() -> None:
    drawn: list[tuple[str, str]] = []
    path: list[tuple[int, str]] = [(-1, "")]
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"^( {4}[| ]*(?:\+-- )?)([A-Za-z]+Error)\b", line)
        if not found:
            continue
        while path[-1][0] >= len(found[1]):
            path.pop()
        drawn.append((found[2], path[-1][1]))
        path.append((len(found[1]), found[2]))
    real = [(kind.__name__, "" if kind is ResinError else kind.__bases__[0].__name__) for kind in TREE]
    assert sorted(drawn) == sorted(real)


def test_exit_codes() -> None:
    """2 is bad usage or configuration, 143 a run that was told to stop, 1 anything else that ran and failed."""
    assert {kind.__name__ for kind in TREE if kind.exit_code == 2} == {"ConfigError", "QuestionError"}
    assert {kind.exit_code for kind in TREE} == {1, 2, 143}


def test_only_errors_that_may_pass_are_retryable() -> None:
    assert {kind.__name__ for kind in TREE if getattr(kind, "retryable", False)} == {
        "LLMUnavailableError",
        "LLMTimeoutError",
        "LLMRateLimitError",
        "LLMServerError",
    }


def test_a_duplicate_id_names_both_places_and_the_fix() -> None:
    message = str(DuplicateIdError("d1", "a.md", "b.md"))
    assert "'d1'" in message and "a.md" in message and "b.md" in message and "another id" in message
