"""The replicas that scale apart: each a thin shell over one port of resin_core."""
