"""Configuration: one set of files for jobs, Serve and the command line."""

from resin_core.config.load import effective, load_config
from resin_core.config.sections import (
    EmbeddedSection,
    EncoderSection,
    IndexingSection,
    LLMSection,
    PlannerSection,
    ResinConfig,
    ResinSection,
    RetrievalSection,
)

__all__ = [
    "EmbeddedSection",
    "EncoderSection",
    "IndexingSection",
    "LLMSection",
    "PlannerSection",
    "ResinConfig",
    "ResinSection",
    "RetrievalSection",
    "effective",
    "load_config",
]
