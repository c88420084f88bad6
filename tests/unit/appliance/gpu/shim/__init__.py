"""Tests of the library for GPU shares."""
