"""Presets: amounts for sessions by name."""
