"""GPUs of a node: discovery, shares in milli-GPU, and how a share is enforced."""
