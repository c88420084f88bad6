"""GPU shares as all speak of them: milli-GPU, how they are written, and the kinds of enforcement."""
