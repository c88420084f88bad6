"""Orders of versions, each by the rules of the ecosystem that they belong to."""

from __future__ import annotations

from collections.abc import Callable

from packaging.version import Version
from univers import debian as dpkg
from univers.rpm import from_evr, vercmp

# negative where the first is older, 0 where both are equal; raises ValueError where one is no version
Compare = Callable[[str, str], int]


def comparison(ecosystem: str) -> Compare:
    """Return the order of an ecosystem by its OSV name, such as `PyPI`, `Debian:12` or `Rocky Linux:9`.

    Of one that is not known nothing can be compared.
    """
    return ORDERS.get(base(ecosystem), unknown)


def base(ecosystem: str) -> str:
    """Return the ecosystem without its release: `Debian` of `Debian:12`."""
    return ecosystem.partition(":")[0]


def python(one: str, other: str) -> int:
    """Compare by PEP 440. A local version, such as `+cu118`, counts only where both have one.

    A build of 2.1.0 with a local version has the faults of 2.1.0, though PEP 440 puts it after.
    """
    left, right = Version(one), Version(other)
    if not (left.local and right.local):
        left, right = Version(left.public), Version(right.public)
    return int(left > right) - int(left < right)


def debian(one: str, other: str) -> int:
    """Compare as `dpkg --compare-versions` does."""
    return int(dpkg.compare_versions(one, other))


def alpine(one: str, other: str) -> int:
    """Compare as apk does; raises ValueError for what is no version."""
    # takes long to import, and few bundles need it
    from univers.versions import AlpineLinuxVersion, InvalidVersion

    try:
        left, right = AlpineLinuxVersion(one), AlpineLinuxVersion(other)
    except InvalidVersion as error:
        raise ValueError(str(error)) from error
    return int(left > right) - int(left < right)


def rpm(one: str, other: str) -> int:
    """Compare `[epoch:]version[-release]` as rpm does: without an epoch it is 0, a missing release fits any."""
    (epoch, version, release), (epoch2, version2, release2) = from_evr(one), from_evr(other)
    if epoch != epoch2:
        return -1 if epoch < epoch2 else 1
    order = int(vercmp(version, version2))
    return order or (int(vercmp(release, release2)) if release and release2 else 0)


def unknown(one: str, other: str) -> int:
    """Raise ValueError: without an order nobody can tell which version is older."""
    raise ValueError(f"nobody knows whether {one} is older than {other} in this ecosystem")


_RPM = (
    "Rocky Linux", "AlmaLinux", "Red Hat", "openSUSE", "SUSE", "Mageia", "openEuler", "Azure Linux", "Photon OS",
    "CentOS", "Fedora", "Oracle Linux", "Amazon Linux",
)  # fmt: skip
_APK = ("Alpine", "Wolfi", "Chainguard", "Alpaquita", "MinimOS")
# as OSV writes them, or would
ORDERS: dict[str, Compare] = {
    "PyPI": python,
    "Debian": debian,
    "Ubuntu": debian,
    **dict.fromkeys(_APK, alpine),
    **dict.fromkeys(_RPM, rpm),
}
