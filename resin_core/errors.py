"""Every error Resin raises on purpose, as one tree.

    ResinError
    +-- ConfigError                 a setting is wrong; nothing was started (exit 2)
    +-- InputError                  what the user handed in cannot be used
    |   +-- QuestionError           empty or far too long a question
    |   +-- SourceError             a source that cannot be read at all
    |   +-- DuplicateIdError        one document id in two places
    +-- ModelError                  local model files or the embedded server
    |   +-- ModelNotFoundError
    |   +-- ModelIntegrityError     a file whose hash is not the trusted one
    |   +-- ServerStartError
    +-- EncoderError
    +-- LLMError                    calls to the language model
    |   +-- LLMUnavailableError     cannot connect, connection lost            (retried)
    |   +-- LLMTimeoutError         no reply within the request's time         (retried)
    |   +-- LLMRateLimitError       429, with Retry-After when it was given    (retried)
    |   +-- LLMServerError          5xx                                        (retried)
    |   +-- LLMRequestError         any other 4xx: the request itself is wrong
    |   +-- LLMReplyError           a reply that does not fit its response model
    |   +-- ContextLengthError      the prompt cannot fit the model's context
    +-- DeadlineError               the caller's deadline has passed
    +-- NotReadyError               the server does not answer yet
    +-- BusyError                   too much is under way already; asking later helps
    +-- ReplicaError                the process that worked on a call was lost, and so were those tried after it
    +-- StoppedError                a run that was told to stop; what it did is kept
    |   +-- BudgetError             indexing.max_llm_tokens or max_cost is used up
    +-- JobError                    a run that stopped itself: too many failures, or no yield
    +-- StoreError                  an index on disk
        +-- UnknownIdError          no such document, passage, unit or trace
        +-- IndexMissingError
        +-- IndexFormatError        written by a newer Resin
        +-- IndexMismatchError      made with another encoder
        +-- IndexCorruptError       a file is missing, half written or altered
        +-- IndexBusyError          another run published meanwhile, or holds the index

Messages name the thing, the value and the way to mend it. `exit_code` is what the command line returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from resin_core.records import Usage


class ResinError(Exception):
    """Root of the tree; `exit_code` is the status the command line ends with.

    Every error can be pickled, so that it keeps its class and attributes on its way between processes. As with any
    exception, its cause and traceback stay behind.
    """

    exit_code = 1

    def __reduce__(self) -> tuple[Any, ...]:
        # An exception is rebuilt as cls(*args) by default, which fails where __init__ takes more than the message.
        return _rebuild, (type(self), self.args), dict(self.__dict__)


def _rebuild(kind: type[ResinError], args: tuple[Any, ...]) -> ResinError:
    """An error without its attributes, which pickle then restores; __init__ is not run."""
    return kind.__new__(kind, *args)


class ConfigError(ResinError):
    """A setting or a flag is wrong."""

    exit_code = 2


class InputError(ResinError):
    """Something the user handed in cannot be used."""


class QuestionError(InputError):
    """The question is empty or longer than allowed."""

    exit_code = 2


class SourceError(InputError):
    """A source that cannot be read at all (missing, unknown type)."""


class DuplicateIdError(InputError):
    """The same document id stands in two places."""

    def __init__(self, doc_id: str, first: str, second: str) -> None:
        super().__init__(
            f"document id {doc_id!r} stands in two places: {first} and {second}; give one of them another id"
        )
        self.doc_id, self.first, self.second = doc_id, first, second


class ModelError(ResinError):
    """Local model files or the embedded server."""


class ModelNotFoundError(ModelError):
    """No weights under that name in any of the places they may come from."""


class ModelIntegrityError(ModelError):
    """A weights file whose hash is not the trusted one."""


class ServerStartError(ModelError):
    """The embedded model server did not come up."""


class EncoderError(ResinError):
    """The text encoder cannot be loaded or gave unusable vectors."""


class LLMError(ResinError):
    """A call to the language model failed. `retryable` says whether the same call may succeed later."""

    retryable = False


class LLMUnavailableError(LLMError):
    """The endpoint cannot be reached, or dropped the connection."""

    retryable = True


class LLMTimeoutError(LLMError):
    """No reply within the time of one request."""

    retryable = True


class LLMRateLimitError(LLMError):
    """HTTP 429; `retry_after_s` is what the server asked for, if it did."""

    retryable = True

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class LLMServerError(LLMError):
    """HTTP 5xx; `retry_after_s` is what the server asked for, if it did."""

    retryable = True

    def __init__(self, message: str, status: int, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s


class LLMRequestError(LLMError):
    """HTTP 4xx other than 429: sending it again cannot help."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class LLMReplyError(LLMError):
    """The reply does not fit its response model; `reason` is a short slug, `raw` the text as it came.

    `usage` is what all calls behind it cost, when that is known.
    """

    def __init__(self, reason: str, message: str, raw: str, usage: Usage | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.raw = raw
        self.usage = usage


class ContextLengthError(LLMError):
    """The prompt and its reply cannot fit the model's context."""


class DeadlineError(ResinError):
    """The caller's deadline has passed."""


class NotReadyError(ResinError):
    """The server has not opened its index, its encoder or its model yet."""


class BusyError(ResinError):
    """Too much is under way already: the same question may be answered later."""


class ReplicaError(ResinError):
    """The process that worked on a call was lost, and trying again did not help."""


class StoppedError(ResinError):
    """The run was told to stop before its end; what was done is kept, the same command goes on from there."""

    exit_code = 143


class BudgetError(StoppedError):
    """The run has used up the tokens or the money it may use."""

    exit_code = 1


class JobError(ResinError):
    """The run stopped itself because going on would only repeat what goes wrong; the message names first causes."""


class StoreError(ResinError):
    """An index on a filesystem."""


class UnknownIdError(StoreError):
    """Nothing of that id is there."""


class IndexMissingError(StoreError):
    """There is no published index at that place."""


class IndexFormatError(StoreError):
    """The index was written in a format this version does not know."""


class IndexMismatchError(StoreError):
    """The index was made with another encoder than the one configured."""


class IndexCorruptError(StoreError):
    """A file of the index is missing, half written or altered; `path` names it."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path


class IndexBusyError(StoreError):
    """Another run published while this one worked, or holds the index; nothing was published."""
