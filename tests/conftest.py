"""What holds for all tests."""

from __future__ import annotations

from hypothesis import settings

# A time limit of an example would measure what else the machine does.
settings.register_profile("penstock", deadline=None)
settings.load_profile("penstock")
