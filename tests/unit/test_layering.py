"""Which part may import which, read from the sources themselves, and how large a module may grow."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FORBIDDEN = {
    "resin_core": {"ray", "fastapi", "starlette", "uvicorn", "jobs", "deployments", "vllm", "tests"},
    "jobs": {"deployments", "tests"},
    "deployments": {"jobs", "tests"},
}
PACKAGES = [name for name in FORBIDDEN if (ROOT / name).is_dir()]
VAGUE_NAMES = {"utils", "util", "common", "helpers", "helper", "misc"}
MAX_LINES = 400
LOADERS = {"import_module", "__import__", "find_spec"}
# A command line that shows its help, or a mistake in a flag, must not wait for these.
HEAVY = {"torch", "ray", "openai", "faiss", "pandas", "sentence_transformers", "transformers"}


def imported_names(tree: ast.Module, package: str) -> Iterator[tuple[int, str]]:
    """Line and dotted name of every import, at any depth, relative and by literal name too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield node.lineno, base
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and node.args:
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            name = node.args[0]
            if called in LOADERS and isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield node.lineno, name.value


def violations(root: Path) -> list[str]:
    """Every breach of the rules below the folder, one line each."""
    found = []
    for package, forbidden in FORBIDDEN.items():
        for folder in [root / package, *(path for path in (root / package).rglob("*") if path.is_dir())]:
            if any(folder.glob("*.py")) and not (folder / "__init__.py").is_file():
                found.append(f"{folder.relative_to(root)}: no __init__.py")
        for file in sorted((root / package).rglob("*.py")):
            place = file.relative_to(root)
            source = file.read_text(encoding="utf-8")
            if not VAGUE_NAMES.isdisjoint({file.stem, *place.parts[:-1]}):
                found.append(f"{place}: the name says nothing about what is inside")
            lines = source.count("\n")
            if lines > MAX_LINES:
                found.append(f"{place}: {lines} lines, more than {MAX_LINES}; split it by idea")
            for line, name in imported_names(ast.parse(source, str(place)), ".".join(place.parts[:-1])):
                if name.partition(".")[0] in forbidden:
                    found.append(f"{place}:{line}: {package} may not import {name}")
    return found


def test_the_tree_keeps_the_rules() -> None:
    assert "resin_core" in PACKAGES and "jobs" in PACKAGES
    assert violations(ROOT) == []


def plant(root: Path, name: str, source: str) -> None:
    """A module in a tree that is otherwise right."""
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    for folder in [file.parent, *file.parent.parents]:
        if folder == root:
            break
        (folder / "__init__.py").touch()
    file.write_text(source, encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("resin_core/a.py", "import ray\n"),
        ("resin_core/a.py", "import json, ray.data as rd\n"),
        ("resin_core/a.py", "from fastapi import FastAPI\n"),
        ("resin_core/deep/a.py", "def f():\n    from starlette.responses import Response\n"),
        ("resin_core/a.py", "class A:\n    def f(self):\n        if self:\n            import uvicorn\n"),
        ("resin_core/a.py", "try:\n    import vllm\nexcept ImportError:\n    pass\n"),
        ("resin_core/a.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from jobs import index\n"),
        ("resin_core/a.py", "import importlib\nimportlib.import_module('deployments.app')\n"),
        ("resin_core/a.py", "from importlib import import_module\nx = import_module('ray')\n"),
        ("resin_core/a.py", "__import__('ray')\n"),
        ("resin_core/__init__.py", "import ray\n"),
        ("jobs/a.py", "import deployments\n"),
        ("jobs/a.py", "from deployments.app import build\n"),
        ("jobs/deep/a.py", "from ...deployments import app\n"),
        ("deployments/a.py", "def f():\n    import jobs.index\n"),
        ("deployments/a.py", "from tests.scripted_llm import fake\n"),
    ],
)
def test_a_planted_import_is_found(tmp_path: Path, name: str, source: str) -> None:
    plant(tmp_path, name, source)
    found = violations(tmp_path)
    assert len({line.partition(":")[0] for line in found}) == 1
    assert all("may not import" in line and line.startswith(name) for line in found)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("resin_core/a.py", "import rayon\nfrom resin_core import ids\nfrom . import jobs\nfrom .jobs import x\n"),
        ("resin_core/a.py", "# import ray\nTEXT = 'import ray'\n"),
        ("jobs/a.py", "import ray\nfrom resin_core.errors import ResinError\nfrom jobs import index\n"),
        ("deployments/a.py", "import ray.serve\nimport fastapi\nfrom deployments import app\n"),
    ],
)
def test_what_is_allowed_is_not_reported(tmp_path: Path, name: str, source: str) -> None:
    plant(tmp_path, name, source)
    assert violations(tmp_path) == []


@pytest.mark.parametrize("name", ["resin_core/utils.py", "jobs/common.py", "resin_core/helpers/a.py", "jobs/misc.py"])
def test_a_vague_name_is_found(tmp_path: Path, name: str) -> None:
    plant(tmp_path, name, "X = 1\n")
    assert f"{name}: the name says nothing about what is inside" in violations(tmp_path)


def test_a_folder_without_its_init_is_found(tmp_path: Path) -> None:
    plant(tmp_path, "resin_core/deep/a.py", "X = 1\n")
    (tmp_path / "resin_core/deep/__init__.py").unlink()
    assert violations(tmp_path) == ["resin_core/deep: no __init__.py"]


def test_a_long_file_is_found(tmp_path: Path) -> None:
    plant(tmp_path, "jobs/a.py", "X = 1\n" * (MAX_LINES + 1))
    plant(tmp_path, "jobs/b.py", "X = 1\n" * MAX_LINES)
    assert violations(tmp_path) == [f"jobs/a.py: {MAX_LINES + 1} lines, more than {MAX_LINES}; split it by idea"]


@pytest.mark.parametrize(
    "module", ["resin_core", "resin_core.cli.main", "resin_core.config", "resin_core.errors", "resin_core.records"]
)
def test_the_command_line_starts_without_heavy_libraries(module: str) -> None:
    if module == "resin_core.cli.main" and not (ROOT / "resin_core/cli/main.py").is_file():
        module = "resin_core.cli"
    code = f"import sys, {module}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert "resin_core" in loaded
    assert loaded & HEAVY == set()
