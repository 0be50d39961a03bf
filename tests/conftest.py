"""Fixtures for all tests."""

import os

# A thread that outlives its test's Ray must not start another one: its end would end the whole run.
os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"

pytest_plugins = ["tests.scripted_llm.fixtures"]
