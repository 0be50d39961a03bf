"""Ray Serve shells over resin_core: scaling, health, deadlines and back-pressure; no method of their own."""
