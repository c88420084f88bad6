"""Sandboxes: named rules on what programs of sessions may ask of the kernel, and for whom they are."""
