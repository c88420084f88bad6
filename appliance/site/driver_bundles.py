"""Drivers that workers are to get, looked for in the bundles of the site, each in one version. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

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
            wrong = [(field, reason, HINT) for field, reason in _wrong(node.driver, node.release, found)]
            wrong = wrong or list(_not_held(node.driver, found, _bound(held, node.release)))
            for field, reason, hint in wrong:
                problems.append(Problem(f"nodes[{index}].driver{field}", f"{node.name}: {reason}", hint))
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
        name: {version for version in versions if _branch(version) == str(driver.branch)}
        for name, versions in together.items()
    }
    if other := {name: versions for name, versions in together.items() if not of_branch[name]}:
        yield ".branch", f"branch {driver.branch} is in no bundle for {release}, which have {_said(other)}"
    elif together and not set.intersection(*of_branch.values()):
        yield "", f"its packages are not of one version: {_said(of_branch)}"


def _bound(bundles: Sequence[Bundle], release: str) -> dict[str, str]:
    """Return the upstream versions that version sets bind packages of a release to, which apt prefers."""
    found: dict[str, str] = {}
    for bundle in bundles:
        targets = {target.name for target in bundle.targets if target.release == release}
        for one in bundle.version_sets:
            if one.target in targets:
                found |= {name: version_sets.upstream(version) for name, version in one.packages.items()}
    return found


def _not_held(
    driver: GpuDriver, found: Mapping[str, set[str]], bound: Mapping[str, str]
) -> Iterator[tuple[str, str, str]]:
    """Yield the branch where nodes would get another one: apt takes what is bound, else the newest that is served."""
    for name in packages(driver).tuple_:
        version = bound.get(name) or max(found[name], key=_order)
        if _branch(version) != str(driver.branch):
            hint = (
                f"to change over write `branch: {_branch(version)}`; else leave out the bundle that brings it with "
                "`penstock reservoir remove NAME --withdraw` and publish, or hold the branch by a version set"
            )
            yield ".branch", f"nodes would get {name} {version}, and not branch {driver.branch}", hint
            return


def _branch(version: str) -> str:
    return version.partition(".")[0]


def _order(version: str) -> list[int]:
    """Return what sorts the versions of drivers, which are numbers alone but for what a packager adds."""
    return [int(number) for number in re.findall(r"\d+", version)]


def _said(versions: dict[str, set[str]]) -> str:
    return ", ".join(f"{name} {' and '.join(sorted(held))}" for name, held in versions.items())
