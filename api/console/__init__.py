"""The console: pages for people, made on the server from what the services say. Nothing imports it."""
