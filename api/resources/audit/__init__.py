"""The audit log: who did what, in lines that cannot be changed, left out or moved unseen."""
