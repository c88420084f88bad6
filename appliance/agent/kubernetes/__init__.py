"""A whole Kubernetes cluster as one node: the only package that knows Kubernetes' interface."""
