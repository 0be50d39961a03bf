"""`python -m resin_core` is `resin`."""

from resin_core.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
