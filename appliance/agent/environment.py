"""Environment of a session's container, as far as every runtime gives it the same. Pure."""

from __future__ import annotations

from common.protocol import ContainerSpec

MILLI = 1000
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""What the numerical libraries read that count the cores of the machine instead."""
NVIDIA_VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
"""Where images for NVIDIA's GPUs ask for all of them, unless something else is said."""


def identity(spec: ContainerSpec) -> dict[str, str]:
    """Return what tells programs whose session they are in, and with which GPUs."""
    return {
        "PENSTOCK_SESSION": spec.session_name,
        "PENSTOCK_PROJECT": spec.project,
        "PENSTOCK_GPUS": ",".join(share.uuid for share in spec.gpus),
        "PENSTOCK_GPU_SHARE": ",".join(str(share.milli) for share in spec.gpus),
    }


def cores_begun(milli: int) -> int:
    """Return how many cores a grant of thousandths begins."""
    return -(-milli // MILLI)


def threads(milli: int) -> dict[str, str]:
    """Return what tells numerical libraries how many threads to start; nothing without a limit."""
    return dict.fromkeys(THREADS, str(cores_begun(milli))) if milli else {}
