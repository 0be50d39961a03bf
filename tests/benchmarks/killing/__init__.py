"""Kills processes under a running indexing job, and finds out whether anything was lost or paid for twice.

The product is driven through its command line only. `runs` puts the parts together; each part knows little of others.
"""
