"""The endpoint with keys required; one application serves all modules of this folder, since its start takes long."""
