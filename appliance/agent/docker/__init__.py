"""The runtime Docker: containers of sessions on one machine."""
