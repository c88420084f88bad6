"""People who may use the cluster."""
