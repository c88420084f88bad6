"""Node agent: reports what a node has and brings its containers to the state that the control API wants."""
