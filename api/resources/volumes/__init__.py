"""Volumes: storage of projects, each with an id and a folder that is nobody else's."""
