"""What Prometheus would read of the Ray that runs: the metrics pages of its nodes."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import ray
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample


def samples() -> Iterator[Sample]:
    """Every value of every node, by its full name."""
    for node in ray.nodes():
        url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
        for family in text_string_to_metric_families(httpx.get(url, timeout=30, trust_env=False).text):
            yield from family.samples
