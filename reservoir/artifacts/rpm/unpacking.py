"""Unpacking of what zstd packed, by createrepo_c, in a process of its own that can write no more than it may.

`python -m reservoir.artifacts.rpm.unpacking PACKED PLAIN MOST` unpacks a file; one that has more than MOST bytes is cut
off behind the first of these, and createrepo_c fails. It has no limit of its own, and Python no zstd.
"""

from __future__ import annotations

import resource
import sys

from reservoir.artifacts.rpm.createrepo import createrepo_c


def unpack(packed: str, plain: str, most: int) -> None:
    """Unpack a file; this process writes no longer ones from then on."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (most + 1, most + 1))
    createrepo_c.decompress_file(packed, plain, createrepo_c.ZSTD)


if __name__ == "__main__":
    unpack(sys.argv[1], sys.argv[2], int(sys.argv[3]))
