"""The index on a filesystem: immutable files, a manifest for each generation, one pointer replaced last.

`IndexWriter` writes, `IndexReader` answers, `verify` audits. Imported from their own modules, so that a command that
touches no index loads neither Arrow nor FAISS.
"""
