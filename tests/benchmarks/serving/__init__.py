"""The endpoint under load and under fire: `resin serve`, its clients and a scripted model, all in processes."""
