"""Sources to documents: which files a source means, and one reader for each kind of file."""
