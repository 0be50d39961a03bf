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
from resin_core.config.serving import ServingSection

__all__ = [
    "EmbeddedSection",
    "EncoderSection",
    "IndexingSection",
    "LLMSection",
    "PlannerSection",
    "ResinConfig",
    "ResinSection",
    "RetrievalSection",
    "ServingSection",
    "effective",
    "load_config",
]
