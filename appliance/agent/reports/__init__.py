"""What an agent tells the control API: heartbeats, inventory, use of GPUs, denied system calls."""
