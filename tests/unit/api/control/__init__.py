"""Unit tests of the control of the API."""
