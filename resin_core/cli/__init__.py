"""The `resin` command: thin files over the core; heavy libraries are imported when a command needs them."""
