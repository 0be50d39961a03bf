"""The method: typed, source-linked reasoning units, focused retrieval per hop, composition last.

Nothing in this package imports Ray, FastAPI, the jobs or the deployments; all of it runs in one process.
"""

__version__ = "0.1.0"
