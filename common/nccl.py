"""Evidence of NCCL: what its own log tells of the ways by which the GPUs of a session reach each other. Pure.

NCCL tells with `NCCL_DEBUG=INFO` which way each of its connections takes. Its words have changed with its releases, and
those of 2.3 to 2.28 are known here; the text of a log is the user's own, so nothing else of it is believed or quoted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pydantic import field_validator

from common.messages import Report

MAX_QUOTE = 240
"""Most characters of a line that is quoted."""
MAX_LINE = 1024
"""Bytes of a line of which something is read: NCCL's are shorter, so no longer one is its."""

_MARK = "NCCL INFO "
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,16}[A-Za-z]")
_GPU = r"\d{1,6}(?:\[[0-9a-f]{1,16}\])?"
_CONNECTION = re.compile(
    rf"(?:Ring|Channel) \d{{1,4}}(?:/\d{{1,4}})? ?: {_GPU} -> {_GPU}(?: \[(?:send|receive)\])? via (?P<way>[!-~][ -~]*)"
)
_COLLECTIVE = re.compile(r"CollNet \d{1,4}(?:/\d{1,4})? ?: \d{1,6} \[(?:send|receive)\] via (?P<way>COLLNET/[!-~]+)")
_NETWORK = re.compile(r"Using (?:internal Network|network) (?P<name>[!-~][ -~]*)")
_NVLS = re.compile(r"(?:Connected NVLS tree|NVLS comm 0x[0-9a-f]{1,16} headRank \d[ -~]*)")
_VERSION = re.compile(r"NCCL version (?P<version>[0-9][0-9A-Za-z.+_-]{0,30})")

WAYS = ("p2p", "ib", "gdrdma")
_WEIGHT = {None: 0, False: 1, True: 2}
"""What is seen counts more than what is not: NCCL takes more than one way at once."""


def _printable(text: str) -> str:
    return "".join(char if " " <= char <= "~" else "?" for char in text[:MAX_QUOTE])


class NcclEvidence(Report):
    """Which ways NCCL took, each with the line that says so: None, and no line, where its log says nothing of it.

    `p2p` is the direct way from GPU to GPU in a node, `ib` InfiniBand (or RoCE) between nodes, and `gdrdma` GPUDirect
    RDMA, by which that leads into the memory of GPUs. `version` is NCCL's own.
    """

    version: str = ""
    p2p: bool | None = None
    p2p_line: str = ""
    ib: bool | None = None
    ib_line: str = ""
    gdrdma: bool | None = None
    gdrdma_line: str = ""

    @field_validator("version", "p2p_line", "ib_line", "gdrdma_line", mode="before")
    @classmethod
    def _short(cls, value: object) -> object:
        """Take a text of any agent as one line of letters that every terminal can show."""
        return _printable(value) if isinstance(value, str) else value

    def with_later(self, later: NcclEvidence) -> NcclEvidence:
        """Return what both tell together: what was seen once stays, for the head of a log may be read only once."""
        both = self.model_copy(update={"version": self.version or later.version})
        for way in WAYS:
            both = both.noting(way, getattr(later, way), getattr(later, f"{way}_line"))
        return both

    def noting(self, way: str, used: bool | None, line: str) -> NcclEvidence:
        """Return this with what a line says of a way; the first that says most is kept."""
        if not line or (getattr(self, f"{way}_line") and _WEIGHT[used] <= _WEIGHT[getattr(self, way)]):
            return self
        return self.model_copy(update={way: used, f"{way}_line": _printable(line)})


class NcclLog:
    """Reads a log as it comes, piece by piece; keeps no more of it than a line that is not whole yet."""

    def __init__(self) -> None:
        """Start with nothing read."""
        self.evidence = NcclEvidence()
        self._rest = b""
        self._too_long = False

    def feed(self, piece: bytes) -> None:
        """Read the next bytes of a log, whatever they are."""
        # a progress bar returns the carriage, and NCCL writes behind it
        *whole, rest = re.split(rb"[\r\n]+", piece)
        for end in whole:
            if not self._too_long and len(self._rest) + len(end) <= MAX_LINE:
                self._read(self._rest + end)
            self._rest, self._too_long = b"", False
        self._too_long = self._too_long or len(self._rest) + len(rest) > MAX_LINE
        self._rest = b"" if self._too_long else self._rest + rest

    def end(self) -> None:
        """Read the last line, which nothing has ended."""
        self.feed(b"\n")

    @property
    def is_complete(self) -> bool:
        """Whether nothing that follows could say more: every way was taken."""
        return bool(self.evidence.p2p and self.evidence.ib and self.evidence.gdrdma)

    def _read(self, line: bytes) -> None:
        if b" via " not in line and b"Using " not in line and b"NVLS" not in line and b"NCCL version" not in line:
            return
        text = _COLOUR.sub("", line.decode("ascii", "replace")).strip()
        _, mark, said = text.rpartition(_MARK)
        if not self.evidence.version and (version := _VERSION.match(said)):
            self.evidence = self.evidence.model_copy(update={"version": version["version"]})
        for way, used in _seen(said).items():
            self.evidence = self.evidence.noting(way, used, f"{mark}{said}")


def _seen(said: str) -> Mapping[str, bool | None]:
    """Return what a line of NCCL says of which ways, from behind its mark; lines of others say nothing."""
    if network := _NETWORK.fullmatch(said):
        # that it is chosen says nothing yet: in one node nothing goes over it
        return {"ib": None if _is_ib(network["name"]) else False}
    if _NVLS.fullmatch(said):
        return {"p2p": True}
    connection = _CONNECTION.fullmatch(said) or _COLLECTIVE.fullmatch(said)
    return _by(connection["way"]) if connection else {}


def _by(way: str) -> Mapping[str, bool | None]:
    kind, _, rest = way.partition("/")
    if kind == "P2P":
        return {"p2p": True}
    if kind in ("SHM", "direct shared memory"):
        return {"p2p": False}
    if kind == "NET" and not _is_ib(rest.partition("/")[0]):
        return {"ib": False, "gdrdma": False}
    if kind == "NET" or (kind == "COLLNET" and rest.startswith("SHARP/")):
        return {"ib": True, "gdrdma": "/GDRDMA" in rest}
    return {}


def _is_ib(network: str) -> bool:
    """Return whether a network of NCCL's is InfiniBand: its own, or that of NVIDIA's plugin (`IBext_v8`)."""
    return network == "IB" or network.startswith("IBext")
