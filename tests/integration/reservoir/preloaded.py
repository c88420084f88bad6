"""What commands of the reservoir import when they need it, and the tree of commands, which is the same in each run."""

from __future__ import annotations

import contextlib
import functools
import importlib
import pkgutil
import sys

import typer.main

import reservoir
from appliance.cli.app import main

# what no command imports, and what libraries import when they are used
LEFT_OUT = ("reservoir.installer", "reservoir.serving.uploads.plugin")
LATE = ("encodings.cp437", "httpcore", "uv")

ours = (module.name for module in pkgutil.walk_packages(reservoir.__path__, "reservoir."))
for name in (*LATE, *(name for name in ours if not name.startswith(LEFT_OUT))):
    importlib.import_module(name)
for name in ("get_command", "get_group"):
    setattr(typer.main, name, functools.cache(getattr(typer.main, name)))
before, sys.argv = sys.argv, ["penstock", "reservoir", "--help"]
with contextlib.redirect_stdout(None), contextlib.suppress(SystemExit):
    main()
sys.argv = before
