"""Machines with an agent, and what their heartbeats say."""
