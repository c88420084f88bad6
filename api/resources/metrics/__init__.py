"""Metrics of GPUs: what the containers of sessions used of them, as time series."""
