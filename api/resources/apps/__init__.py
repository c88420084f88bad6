"""Apps: ports of running sessions that people open in a browser, through the edge."""
