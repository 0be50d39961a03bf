"""Ray Data shells over resin_core: partitioning, resources, resume and publication, and no method of their own."""
