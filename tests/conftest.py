"""Fixtures for all tests."""

import os

from deployments.serving import FAST

# Read when Ray is imported. A thread that outlives its test's Ray must not start another one: its end would end the
# whole run. And Serve is to work as `resin serve` has it work.
os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"
os.environ.update(FAST)

pytest_plugins = ["tests.scripted_llm.fixtures"]
