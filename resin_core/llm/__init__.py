"""The language model client: one wire format, wrappers that nest, replies read into typed records."""
