"""Fixtures for all tests."""

pytest_plugins = ["tests.scripted_llm.fixtures"]
