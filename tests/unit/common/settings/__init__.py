"""Tests of the settings that a site chooses."""
