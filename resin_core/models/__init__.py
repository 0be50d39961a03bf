"""Local models: weights by name, and the language model server that Resin starts itself."""
