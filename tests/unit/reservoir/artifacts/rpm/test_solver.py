from __future__ import annotations

from pathlib import Path

from reservoir.artifacts.rpm.metadata import MetadataFile
from reservoir.artifacts.rpm.solver import Solver
from reservoir.artifacts.rpm.source import Repository

PACKAGE = """<package type="rpm"><name>{name}</name><arch>{arch}</arch>
<version epoch="{epoch}" ver="{version}" rel="{release}"/><checksum type="sha256" pkgid="YES">{digits}</checksum>
<location href="{name}.rpm"/><format xmlns:rpm="http://linux.duke.edu/metadata/rpm">
<rpm:license>MIT</rpm:license><rpm:sourcerpm>{source}</rpm:sourcerpm></format></package>"""
PERL, GIT, ODD = "perl-5.32.1-480.el9.src.rpm", "git-2.39-1.el9.src.rpm", "odd-1-1.src.rpm"


def package(
    name: str, version: str, source: str, epoch: int = 0, release: str = "480.el9", arch: str = "noarch"
) -> str:
    return PACKAGE.format(
        digits="0" * 64, name=name, version=version, source=source, epoch=epoch, release=release, arch=arch
    )


def test_the_epoch_of_a_source_is_that_of_the_package_of_its_name(tmp_path: Path) -> None:
    packages = [
        package("perl-Errno", "1.30", PERL),
        package("perl-libs", "5.32.1", PERL, epoch=3),
        package("perl", "5.32.1", PERL, epoch=4),
        package("git", "2.39", "", epoch=1, release="1.el9", arch="src"),
        package("git", "2.39", GIT, release="1.el9"),
        package("odd-libs", "7", ODD, epoch=2, release="1"),
    ]
    primary = tmp_path / "primary.xml"
    space = "http://linux.duke.edu/metadata/common"
    primary.write_text(f'<metadata xmlns="{space}" packages="{len(packages)}">{"".join(packages)}</metadata>')
    solver = Solver("x86_64")
    repository = Repository("demo", "https://packages.example/", (), signed=False)
    solver.add(repository, {"primary": MetadataFile("primary.xml", primary)})
    solver.prepare()
    assert solver.epochs({PERL, GIT, ODD, ""}) == {PERL: "4", GIT: "1"}
