"""Shares that our preload library holds inside of the container: memory, what it sees of the GPU, and its time there.

The library, its list in `/etc/ld.so.preload` and the limits are mounted read-only, so neither user nor image switches
it off. The account is one file that every process of the container may write; it lies on a small file system of its
own. All that the agent must know again after a restart stands in those files.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from appliance.gpu import share_files, tmpfs_quota
from appliance.gpu.devices import DeviceShare, Needs
from appliance.gpu.enforcement import AccountedOnly, Probe
from appliance.gpu.layout import Limit, Total
from appliance.gpu.share_files import LimitsFile
from common.gpu.kinds import Compute, Enforcement
from common.protocol import GpuDevice, Mount

FRAME_TARGET = "/run/penstock"
LIMITS_TARGET = "/run/penstock/limits"
ACCOUNT_TARGET = "/run/penstock/account/account"
PRELOAD_TARGET = "/etc/ld.so.preload"


class Preload(AccountedOnly):
    """Limits that the preload library holds."""

    def __init__(
        self, library: Path, folder: Path, compute: Compute, mount_quota: Callable[[Path], None] = lambda _: None
    ) -> None:
        """Use a library of this node, and a folder on a tmpfs in which each container gets one of its own.

        `mount_quota` makes a folder a file system of its own, for an account that cannot grow.
        """
        super().__init__(Enforcement.SHIM)
        self._library = library
        self._folder = folder
        self.compute = compute
        self._mount_quota = mount_quota
        self._files: dict[str, LimitsFile] = {}
        # threads that read a container's files and the one that removes them
        self._lock = threading.Lock()

    def probe(self, devices: Sequence[GpuDevice]) -> Probe:
        """Return whether the library is on this node."""
        if not self._library.is_file():
            return Probe(False, f"there is no library {self._library}")
        return Probe(True, f"{self._library} holds memory and time")

    def prepare(self, container: str, shares: Sequence[DeviceShare]) -> None:
        """Write limits and account of a container that is about to be made; raises UnavailableError.

        Those of one that was made already and never started stay as they are.
        """
        folder = self._folder / container
        if (folder / "limits/limits").exists():
            return
        share_files.write(folder / "ld.so.preload", f"{self._library}\n".encode(), 0o644)
        self._mount_quota(folder / "account")
        share_files.create_account(folder / "account/account", len(shares))
        self._frame(folder)
        # last: the limits say that all is there
        with self._lock:
            self._files[container] = LimitsFile.create(folder / "limits/limits", self._limits(shares))

    def needs(self, container: str, shares: Sequence[DeviceShare]) -> Needs:
        """Return the mounts of the library, its list, the limits and the account.

        Root in a container may rename a folder that has mounts in it, but none that is one: so those above are mounts,
        too. The library itself is, for a container keeps the one that it began with.
        """
        folder = self._folder / container
        return Needs(
            mounts=(
                Mount(source=str(folder / "shelf"), target=str(self._library.parent), read_only=True),
                Mount(source=str(self._library), target=str(self._library), read_only=True),
                Mount(source=str(folder / "frame"), target=FRAME_TARGET, read_only=True),
                Mount(source=str(folder / "ld.so.preload"), target=PRELOAD_TARGET, read_only=True),
                Mount(source=str(folder / "limits"), target=LIMITS_TARGET, read_only=True),
                Mount(source=str(folder / "account/account"), target=ACCOUNT_TARGET),
            )
        )

    def apply(self, container: str, shares: Sequence[DeviceShare], pid: int) -> None:
        """Write the limits of a container where they are others; its processes see them at their next call."""
        file, wanted = self.limits(container), self._limits(shares)
        if file.limits() != wanted:
            file.change(wanted)

    def remove(self, container: str) -> None:
        """Remove the folder of a container that has gone, or of one that a run of the agent before this one left.

        What cannot be removed stands in the log.
        """
        folder = self._folder / container
        with self._lock:
            # who still reads keeps the file mapped; nobody maps it anew
            self._files.pop(container, None)
            with contextlib.suppress(OSError):
                (folder / "limits/limits").unlink()
        tmpfs_quota.unmount(folder / "account")
        tmpfs_quota.remove_folder(folder)

    def has(self, container: str) -> bool:
        """Return whether the library is in a container."""
        return container in self._files or (self._folder / container / "limits/limits").exists()

    def limits(self, container: str) -> LimitsFile:
        """Return the limits file of a container; raises UnavailableError where it has none that can be used."""
        with self._lock:
            if container not in self._files:
                self._files[container] = LimitsFile(self._folder / container / "limits/limits")
            return self._files[container]

    def totals(self, container: str) -> dict[str, Total]:
        """Return what a container does with each of its GPUs, by their ids; nothing where nobody can tell.

        Raises UnavailableError where its limits cannot be read.
        """
        counted = share_files.read_account(self._folder / container / "account/account")
        return dict(zip((limit.uuid for limit in self.limits(container).limits()), counted, strict=False))

    def log(self, container: str, uuid: str) -> bytes:
        """Return when processes of a container last had work on a GPU; raises UnavailableError."""
        number = self.limits(container).number(uuid)
        return share_files.read_log(self._folder / container / "account/account", number)

    def settle(self, container: str, uuid: str, lost_ns: int) -> None:
        """Give a container back ns of a GPU that it counted as its own and lost to others; raises UnavailableError."""
        self.limits(container).settle(uuid, lost_ns)

    def charge(self, container: str, uncounted: Mapping[str, int]) -> None:
        """Charge a container what it holds beyond its account, in bytes by GPU; raises UnavailableError."""
        self.limits(container).charge(uncounted)

    def _frame(self, folder: Path) -> None:
        """Make empty places for what is mounted into a container below mounts; raises UnavailableError."""
        share_files.write(folder / "shelf" / self._library.name, b"", 0o444)
        share_files.write(folder / "frame/account/account", b"", 0o444)
        # what is mounted into a folder that nobody may write needs its place there
        (folder / "frame/limits").mkdir(exist_ok=True)
        (folder / "frame").chmod(0o755)

    def _limits(self, shares: Sequence[DeviceShare]) -> list[Limit]:
        return [
            Limit(
                share.device.uuid,
                # who has a whole GPU shares neither its memory nor its time
                0 if share.is_whole else share.memory_mib << 20,
                share.milli,
                Compute.OFF if share.is_whole else self.compute,
            )
            for share in shares
        ]
