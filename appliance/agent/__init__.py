"""The node agent: it reports what a node has and brings its containers to the state that the control API wants."""
