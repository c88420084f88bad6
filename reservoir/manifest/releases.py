"""Facts of the releases whose packages apt installs, by their code names. Pure: touches no file."""

from __future__ import annotations

from dataclasses import dataclass

# what debootstrap's smallest variant installs beside everything of priority "required"
_SMALLEST = ("apt", "?essential", "?priority(^required$)")


@dataclass(frozen=True)
class Release:
    """One release of a distribution, which is written as apt's `Origin` has it; `glibc` decides which wheels run.

    `osv` is the ecosystem of its packages in advisories. `pin` is apt's letter for what tells the release, its updates
    and its security updates apart: Debian gives each a code name (`n`), Ubuntu a suite (`a`). `on_every_node` names
    what every node has: named first, it settles alternatives as on a node, where apt finds it installed. `bootstrap`
    is what a root file system is made of, `script` the program of debootstrap that makes it, where that knows no such
    code name.
    """

    distribution: str
    glibc: str
    osv: str
    pin: str
    on_every_node: str = "?exact-name(sysvinit-utils)"
    bootstrap: tuple[str, ...] = _SMALLEST
    script: str = ""

    def pins(self, name: str) -> list[str]:
        """Return apt's words for what is released under a code name."""
        return [f"o={self.distribution},{self.pin}={name}{part}" for part in ("", "-updates", "-security")]


_MERGED = ("usr-is-merged", *_SMALLEST)
RELEASES = {
    "bookworm": Release(
        "Debian", "2.36", "Debian:12", "n", "?or(?exact-name(usr-is-merged),?exact-name(sysvinit-utils))", _MERGED
    ),
    "trixie": Release("Debian", "2.41", "Debian:13", "n", bootstrap=_MERGED),
    "jammy": Release("Ubuntu", "2.35", "Ubuntu:22.04:LTS", "a", script="gutsy"),
    "noble": Release("Ubuntu", "2.39", "Ubuntu:24.04:LTS", "a", script="gutsy"),
}
