"""Reports of an agent to the control API: heartbeats, GPU metrics, denied system calls."""
