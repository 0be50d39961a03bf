"""The dashboard asks for nothing that is not measured, under the names that Prometheus gets from Ray."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import ray.serve

import deployments
from deployments.metrics import AnswerMetrics, Makers
from jobs import watch

DASHBOARD = json.loads((Path(deployments.__file__).parent / "dashboards" / "resin.json").read_text(encoding="utf-8"))
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
# What Prometheus adds to a name, by the kind of metric.
ENDS = {"Counter": ("_total",), "Gauge": ("",), "Histogram": ("_bucket", "_sum", "_count")}
_MADE = re.compile(r'\b(Counter|Gauge|Histogram)\(\s*"(serve_\w+)"')
_USED = re.compile(r"\bray_\w+")
_MATCHED = re.compile(r"(\w+)\s*[=!]~?\s*\"")
_GROUPED = re.compile(r"\bby \(([^)]*)\)")
_SHOWN = re.compile(r"{{(\w+)}}")


def of_resin() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Kind and tags of the project's own metrics by name."""
    found: dict[str, tuple[str, tuple[str, ...]]] = {}

    def maker(kind: str) -> Any:
        def make(name: str, *, tag_keys: tuple[str, ...], **_: Any) -> None:
            found[name] = (kind, tag_keys)

        return make

    AnswerMetrics(Makers(maker("Counter"), maker("Gauge"), maker("Histogram")))
    jobs = {gauge.info["name"]: ("Gauge", gauge.info["tag_keys"]) for gauge in watch._gauges().values()}
    return found | jobs


def of_ray() -> dict[str, str]:
    """Kind of Serve's own metrics by name, as the installed sources make them."""
    sources = (file.read_text(encoding="utf-8") for file in Path(ray.serve.__file__).parent.rglob("*.py"))
    return {name: kind for source in sources for kind, name in _MADE.findall(source)}


OURS = of_resin()
EXPORTED = {
    f"ray_{name}{end}": name
    for name, kind in ({name: kind for name, (kind, _) in OURS.items()} | of_ray()).items()
    for end in ENDS[kind]
}


def targets() -> list[tuple[str, str, str]]:
    """Title, expression and legend of all that panels show."""
    return [
        (panel["title"], target["expr"], target["legendFormat"])
        for panel in PANELS
        for target in panel.get("targets", ())
    ]


def queries() -> list[str]:
    return [expression for _, expression, _ in targets()] + [
        variable["query"]["query"] for variable in DASHBOARD["templating"]["list"] if variable["type"] == "query"
    ]


@pytest.mark.parametrize("query", queries())
def test_every_metric_asked_for_is_made(query: str) -> None:
    used = _USED.findall(query)
    assert used and set(used) <= EXPORTED.keys()


def test_every_metric_of_ours_is_shown() -> None:
    shown = {EXPORTED[name] for _, expression, _ in targets() for name in _USED.findall(expression)}
    assert OURS.keys() <= shown


@pytest.mark.parametrize(("title", "expression", "legend"), targets())
def test_labels_are_tags_of_the_metric(title: str, expression: str, legend: str) -> None:
    names = {EXPORTED[name] for name in _USED.findall(expression)}
    grouped = {label.strip() for group in _GROUPED.findall(expression) for label in group.split(",")}
    assert set(_SHOWN.findall(legend)) <= grouped, title
    for name in names & OURS.keys():
        known = {*OURS[name][1], "le"} if OURS[name][0] == "Histogram" else set(OURS[name][1])
        assert grouped | set(_MATCHED.findall(expression)) <= known, title


@pytest.mark.parametrize(("title", "expression", "legend"), targets())
def test_brackets_close_and_only_what_rises_has_a_rate(title: str, expression: str, legend: str) -> None:
    for opening, closing in ("()", "{}", "[]"):
        assert expression.count(opening) == expression.count(closing), title
    for name in re.findall(r"\b(?:rate|increase)\((ray_\w+)", expression):
        assert name.endswith(("_total", "_bucket", "_sum", "_count")), title


def test_panels_have_ids_and_places_of_their_own() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    assert all(count == 1 for count in Counter(panel["title"] for panel in PANELS).values())
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells


def test_the_data_source_is_the_reader_s_choice() -> None:
    variables = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    shown = [panel for panel in PANELS if panel["type"] != "row"]
    assert shown and all(panel["datasource"]["uid"] == "${datasource}" for panel in shown)
    assert all(target["datasource"]["uid"] == "${datasource}" for panel in shown for target in panel["targets"])
    used = {name for query in queries() for name in re.findall(r"\$(\w+)", query)} - {"__rate_interval"}
    assert used == variables.keys() - {"datasource"}


def test_panels_say_what_they_show() -> None:
    assert all(panel["description"] for panel in PANELS if panel["type"] != "row")
