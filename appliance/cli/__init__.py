"""The `penstock` command. Only this package prints and exits."""

from __future__ import annotations

from appliance.cli.app import main

__all__ = ["main"]
