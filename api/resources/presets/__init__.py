"""Presets: sizes of sessions by name."""
