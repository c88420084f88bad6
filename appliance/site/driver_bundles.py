"""Drivers that workers are to get, looked for in the bundles of the site, each in one version. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from appliance.site.gpu_driver import GpuDriver, packages
from appliance.site.model import Site
from common.errors import InputError, Problem
from reservoir.contents import version_sets
from reservoir.contents.artifact import DebianArtifact
from reservoir.contents.bundle import Bundle

HINT = (
    "build a bundle with it from drivers.yml of the product, import it, and deploy again; "
    "where the reservoir holds one that it does not serve: `penstock reservoir publish`"
)


def require(site: Site, bundles: Iterable[Bundle]) -> None:
    """Raise InputError that lists every driver which the bundles lack, or have in parts that do not fit."""
    held = list(bundles)
    problems: list[Problem] = []
    for index, node in enumerate(site.nodes):
        if node.driver and (wanted := packages(node.driver).all):
            found = _versions(held, node.release, wanted)
            for field, reason in _wrong(node.driver, node.release, found):
                problems.append(Problem(f"nodes[{index}].driver{field}", f"{node.name}: {reason}", HINT))
    if problems:
        raise InputError.of(problems)


def _versions(bundles: Sequence[Bundle], release: str, names: Sequence[str]) -> dict[str, set[str]]:
    """Return the upstream versions of packages that bundles have for a release; those of none are not there."""
    found: dict[str, set[str]] = {}
    for bundle in bundles:
        targets = {target.name for target in bundle.targets if target.release == release}
        for deb in bundle.of_kind(DebianArtifact):
            if deb.name in names and targets & set(deb.targets):
                found.setdefault(deb.name, set()).add(version_sets.upstream(deb.version))
    return found


def _wrong(driver: GpuDriver, release: str, found: dict[str, set[str]]) -> Iterator[tuple[str, str]]:
    """Yield the field that cannot be had, and why."""
    wanted = packages(driver)
    if lacking := [name for name in wanted.all if name not in found]:
        yield "", f"no bundle has {', '.join(lacking)} for {release}"
    together = {name: found[name] for name in wanted.tuple_ if name in found}
    of_branch = {
        name: {version for version in versions if version.split(".")[0] == str(driver.branch)}
        for name, versions in together.items()
    }
    if other := {name: versions for name, versions in together.items() if not of_branch[name]}:
        yield ".branch", f"branch {driver.branch} is in no bundle for {release}, which have {_said(other)}"
    elif together and not set.intersection(*of_branch.values()):
        yield "", f"its packages are not of one version: {_said(of_branch)}"


def _said(versions: dict[str, set[str]]) -> str:
    return ", ".join(f"{name} {' and '.join(sorted(held))}" for name, held in versions.items())
