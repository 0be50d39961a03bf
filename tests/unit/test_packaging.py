"""What is shipped: every package and data file is in the wheel, and the Makefile and CI run what there is."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from configparser import ConfigParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHIPPED = ["resin_core", "jobs", "deployments"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def sources(pattern: str) -> set[str]:
    """Files of the shipped packages, relative to the root."""
    return {
        file.relative_to(ROOT).as_posix()
        for package in SHIPPED
        for file in (ROOT / package).rglob(pattern)
        if file.is_file() and "__pycache__" not in file.parts
    }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built from a copy, so that the build leaves nothing in the tree."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "source"
    copy.mkdir()
    for name in [*SHIPPED, "pyproject.toml", "LICENSE", "README.md"]:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif (ROOT / name).is_file():
            shutil.copy(ROOT / name, copy / name)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run(
        [*command, "-w", str(folder), str(copy)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return zipfile.ZipFile(built)


def test_every_folder_with_python_files_is_listed() -> None:
    listed = PROJECT["tool"]["setuptools"]["packages"]
    assert sorted(listed) == sorted({Path(file).parent.as_posix().replace("/", ".") for file in sources("*.py")})


def test_the_wheel_holds_every_module(wheel: zipfile.ZipFile) -> None:
    held = {name for name in wheel.namelist() if name.endswith(".py")}
    assert held == sources("*.py")


def test_the_wheel_holds_the_sample_and_every_other_data_file(wheel: zipfile.ZipFile) -> None:
    data = {name for name in sources("*") if not name.endswith((".py", ".pyc"))}
    assert "resin_core/sample/questions.json" in data
    assert "resin_core/py.typed" in data
    assert len([name for name in data if name.startswith("resin_core/sample/corpus/")]) >= 3
    assert data <= set(wheel.namelist())
    for name in data:
        assert wheel.read(name) == (ROOT / name).read_bytes()


def test_the_wheel_holds_nothing_else(wheel: zipfile.ZipFile) -> None:
    tops = {name.partition("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} <= set(SHIPPED)


def test_the_wheel_holds_the_licence(wheel: zipfile.ZipFile) -> None:
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/licenses/LICENSE")]
    assert b"Apache License" in wheel.read(name)
    (metadata,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    assert b"\nLicense-Expression: Apache-2.0\n" in wheel.read(metadata)


def test_every_entry_point_is_a_function_that_exists(wheel: zipfile.ZipFile) -> None:
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/entry_points.txt")]
    points = ConfigParser()
    points.read_string(wheel.read(name).decode())
    assert "resin" in points["console_scripts"]
    for target in (value for section in points.sections() for value in points[section].values()):
        module, _, function = target.partition(":")
        tree = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
        defined = {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
        assert function in defined, f"{target} is no function"


def test_the_version_is_the_same_everywhere() -> None:
    import resin_core

    version = PROJECT["project"]["version"]
    assert resin_core.__version__ == version
    assert f"\n## {version} - " in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_two_builds_of_faiss_are_never_installed_together() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    always = PROJECT["project"]["dependencies"]
    holding = [extra for extra, wanted in extras.items() if any(name.startswith("faiss") for name in wanted)]
    assert sorted(holding) == ["cpu", "gpu"]
    assert not any(name.startswith("faiss") for name in always)


def planned(*goals: str, installed: bool = True) -> str:
    """What make would run, without running it, where everything or nothing is installed."""
    clean = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    state = ["-o", ".venv/.installed"] if installed else ["-B"]
    done = subprocess.run(
        ["make", "-n", *state, "-C", str(ROOT), *goals], capture_output=True, text=True, check=False, env=clean
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_make_runs_the_tools_of_the_environment() -> None:
    assert ".venv/bin/resin demo" in planned("demo")
    assert ".venv/bin/python -m pytest -k x" in planned("test", "ARGS=-k x")
    check = planned("check")
    for tool in ("ruff check .", "ruff format --check .", "mypy", "python -m pytest tests/unit/test_layering.py"):
        assert f".venv/bin/{tool}" in check


def test_make_bench_runs_every_benchmark() -> None:
    (line,) = [line for line in planned("bench").splitlines() if "for name in" in line]
    named = line.partition("for name in")[2].partition(";")[0].split()
    assert sorted(named) == sorted(file.stem for file in (ROOT / "tests/benchmarks").glob("bench_*.py"))


@pytest.mark.parametrize("goal", ["demo", "test", "check", "bench"])
def test_every_target_installs_what_is_missing_and_nothing_twice(goal: str) -> None:
    assert "pip install" in planned(goal, installed=False)
    assert "pip install" not in planned(goal)


def test_make_install_takes_the_pinned_torch_first() -> None:
    done = planned("install", installed=False)
    first, second = done.index("-c constraints-cpu.txt torch"), done.index('-c constraints-cpu.txt -e ".[cpu,dev]"')
    assert first < second
    assert "\ntorch==" in (ROOT / "constraints-cpu.txt").read_text(encoding="utf-8")


def test_ci_runs_check_and_test() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    lines = script.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "#!/usr/bin/env bash"
    assert [line for line in lines if line.startswith("step make")] == ["step make check", "step make test"]


def test_ci_stops_at_the_first_failure_from_any_folder(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "make").write_text('#!/bin/sh\necho "made $1 in $PWD"\ncat\n[ "$1" != check ]\n')
    (tmp_path / "bin" / "make").chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    pipe = subprocess.PIPE
    with subprocess.Popen([str(ROOT / ".ci" / "run")], cwd=tmp_path, env=env, stdin=pipe, stdout=pipe) as run:
        assert run.stdout is not None
        output = run.stdout.read().decode()  # stdin stays open: a step that reads it must not wait
        assert run.wait(timeout=10) != 0
    assert output == f"+ make check\nmade check in {ROOT}\n"
