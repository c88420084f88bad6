"""Checks that need a GPU; `python -m tests.gpu.check` runs them. No test of pytest lies here."""
