"""Endpoints: what the control API offers over HTTP, a module a resource, and who may call it."""
