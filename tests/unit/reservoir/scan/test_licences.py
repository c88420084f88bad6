from __future__ import annotations

import io
import lzma
import subprocess
import sys
import tarfile
import time
import tracemalloc
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import pytest

from reservoir.artifacts import licence
from reservoir.artifacts.debian import licence as copyright_files
from reservoir.artifacts.debian.licence import copyright_file
from reservoir.artifacts.licence import Found
from reservoir.contents.artifact import DebianArtifact, PythonArtifact, RpmArtifact
from reservoir.download.cache import Cache
from reservoir.scan import licences
from reservoir.scan.licences import read, read_all
from tests.unit.reservoir.parts import artifact

OSI = "Classifier: License :: OSI Approved"
HEADER = "Format: https://example.org/copyright-format/1.0/\nUpstream-Name: demo\n\n"


def wheel(folder: Path, *lines: str) -> Path:
    path = folder / "demo-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("demo/vendored-1.dist-info/METADATA", "Name: vendored\nLicense: GPL-3.0-only\n")
        archive.writestr(
            "demo-1.0.dist-info/METADATA", "\n".join(["Metadata-Version: 2.4", "Name: demo", *lines]) + "\n"
        )
    return path


def deb(folder: Path, name: str, copyright: str = "", link: str = "", mode: Literal["w:xz", "w:gz"] = "w:xz") -> Path:  # noqa: A002
    """A Debian package: an `ar` archive whose last member is a `tar` archive."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode=mode) as archive:
        place = f"./usr/share/doc/{name}"
        if link:
            member = tarfile.TarInfo(place)
            member.type, member.linkname = tarfile.SYMTYPE, link
            archive.addfile(member)
        else:
            content = copyright.encode()
            member = tarfile.TarInfo(f"{place}/copyright")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    path = folder / f"{name}_1.0_all.deb"
    members = {"debian-binary": b"2.0\n", "control.tar.xz": b"odd", f"data.tar.{mode[2:]}": data.getvalue()}
    with path.open("wb") as file:
        file.write(b"!<arch>\n")
        for title, content in members.items():
            file.write(f"{title:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode())
            file.write(content + b"\n" * (len(content) % 2))
    return path


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["License-Expression: mit or apache-2.0"], Found("MIT OR Apache-2.0", "License-Expression")),
        (["License: Apache License 2.0"], Found("Apache-2.0", "License")),
        (
            ["License: BSD-3-Clause", "Classifier: License :: OSI Approved :: BSD License"],
            Found("BSD-3-Clause", "License and Classifier"),
        ),
        (["Classifier: License :: OSI Approved :: MIT License"], Found("MIT", "Classifier")),
        (
            [
                "Classifier: License :: OSI Approved :: MIT License",
                "Classifier: License :: OSI Approved :: Apache Software License",
            ],
            Found("Apache-2.0 AND MIT", "Classifier"),
        ),
        # what says a licence by no name of it
        (["License: UNKNOWN", f"{OSI} :: MIT License"], Found("MIT", "Classifier")),
        (["License: BSD", f"{OSI}"], Found("LicenseRef-BSD", "License")),
        (["License: Permission is hereby", "        granted, free of charge, to", f"{OSI} :: MIT License"],
         Found("MIT", "License and Classifier")),
        (["License: MIT OR Apache-2.0", f"{OSI} :: MIT License", f"{OSI} :: Apache Software License"],
         Found("MIT OR Apache-2.0", "License and Classifier")),
        (["License: GPL-3.0-or-later", f"{OSI} :: GNU General Public License (GPL)"],
         Found("GPL-3.0-or-later", "License and Classifier")),
        # contradictions
        (["License: AGPL-3.0-only", f"{OSI} :: MIT License"],
         Found(None, "contradiction: License says AGPL-3.0-only, Classifier says MIT")),
        (["License-Expression: MIT", f"{OSI} :: GNU Affero General Public License v3"],
         Found(None, "contradiction: License-Expression says MIT, Classifier says AGPL-3.0-only")),
        (["License: GNU AFFERO GENERAL PUBLIC LICENSE", "        Version 3", f"{OSI} :: MIT License"],
         Found(None, "contradiction: License says AGPL, Classifier says MIT")),
        (["License: MIT", f"{OSI} :: GNU General Public License (GPL)"],
         Found(None, "contradiction: License says MIT, Classifier says GPL")),
        # the same names, held together otherwise; names that only begin alike
        (["License-Expression: MIT OR AGPL-3.0-only", "License: MIT AND AGPL-3.0-only"],
         Found(None, "contradiction: License-Expression says MIT OR AGPL-3.0-only, "
                     "License says MIT AND AGPL-3.0-only")),
        (["License-Expression: MIT AND Apache-2.0", "License: MIT WITH Apache-2.0"],
         Found(None, "contradiction: License-Expression says MIT AND Apache-2.0, License says MIT WITH Apache-2.0")),
        (["License-Expression: MIT", "License: LicenseRef-MIT-NonCommercial"],
         Found(None, "contradiction: License-Expression says MIT, License says LicenseRef-MIT-NonCommercial")),
        (["License-Expression: MIT", "License: MIT-0"],
         Found(None, "contradiction: License-Expression says MIT, License says MIT-0")),
        (["License-Expression: BSD-3-Clause", "License: BSD-3-Clause-No-Nuclear-License"],
         Found(None, "contradiction: License-Expression says BSD-3-Clause, "
                     "License says BSD-3-Clause-No-Nuclear-License")),
        (["License-Expression: MIT OR BSD-3-Clause", "License: MIT AND LicenseRef-BSD"],
         Found(None, "contradiction: License-Expression says MIT OR BSD-3-Clause, "
                     "License says MIT AND LicenseRef-BSD")),
        (["License-Expression: BSD-3-Clause OR MIT", "License: MIT OR LicenseRef-BSD"],
         Found("BSD-3-Clause OR MIT", "License-Expression and License")),
        (["License-Expression: MIT-0", "License: Permission is hereby", "        granted, free of charge, to"],
         Found("MIT-0", "License-Expression and License")),
        # classifiers in other case, or with other spaces
        (["License-Expression: MIT", "Classifier: License:: OSI Approved :: GNU Affero General Public License v3"],
         Found(None, "contradiction: License-Expression says MIT, Classifier says AGPL-3.0-only")),
        (["License-Expression: MIT", "Classifier: license :: osi approved::GNU AFFERO General Public License v3"],
         Found(None, "contradiction: License-Expression says MIT, Classifier says AGPL-3.0-only")),
        (["License-Expression: MIT", "Classifier: LICENSE  ::  Other/Proprietary  License"],
         Found(None, "cannot be told: Classifier: Other/Proprietary License")),
        # said twice, or in a text that anybody can write around
        (["License: AGPL-3.0-only", "License: MIT", f"{OSI} :: MIT License"],
         Found(None, "cannot be told: License is said twice, or is no text")),
        (["License: Permission is hereby", "        granted, free of charge, to none"],
         Found(None, "cannot be told: License: MIT")),
        # words that nobody can read
        (["License: see the file"], Found(None, "cannot be told: License: see the file")),
        (["License: see the file", f"{OSI} :: MIT License"], Found(None, "cannot be told: License: see the file")),
        (["License: Copyright of many", "        and more lines"],
         Found(None, "cannot be told: License: Copyright of many")),
        ([f"{OSI} :: MIT License", "Classifier: License :: Other/Proprietary License"],
         Found(None, "cannot be told: Classifier: Other/Proprietary License")),
        (["License-Expression: MIT", "Classifier: License :: Other/Proprietary License"],
         Found(None, "cannot be told: Classifier: Other/Proprietary License")),
        ([f"{OSI} :: GNU General Public License (GPL)"], Found(None, "cannot be told: Classifier: GPL")),
        ([], Found()),
    ],
)  # fmt: skip
def test_a_wheel_says_its_licence_in_its_own_metadata(tmp_path: Path, lines: list[str], found: Found) -> None:
    path = wheel(tmp_path, *lines)
    assert read(artifact(path, PythonArtifact, "demo"), path) == found


@pytest.mark.parametrize(
    ("stated", "expression"),
    [
        (["Expat"], "MIT"),
        (["GPL-2+"], "GPL-2.0-or-later"),
        (["LGPL-2.1"], "LGPL-2.1-only"),
        (["GPL-2+", "Expat", "GPL-2+"], "GPL-2.0-or-later AND MIT"),
        (["GPL-1+ or Artistic"], "GPL-1.0-or-later OR LicenseRef-Debian-Artistic"),
        (["BSD-3-clause and Expat"], "BSD-3-Clause AND MIT"),
        (["GPL-3+ with Bison exception"], "LicenseRef-Debian-GPL-3-or-later-with-Bison-exception"),
        (["public-domain"], "LicenseRef-Debian-public-domain"),
        (["apache-2.0"], "Apache-2.0"),
        (["Expat or GPL-2 and ISC"], "MIT OR (GPL-2.0-only AND ISC)"),
        # a comma has `and` bind weaker than `or`
        (["Expat or BSD-3-clause, and AGPL-3"], "(MIT OR BSD-3-Clause) AND AGPL-3.0-only"),
        (["Expat and ISC, or GPL-2"], "(MIT AND ISC) OR GPL-2.0-only"),
        (["Expat, or ISC, and GPL-2"], "(MIT OR ISC) AND GPL-2.0-only"),
        # spellings of GNU's names, and of what connects names
        (["AGPLv3"], "AGPL-3.0-only"),
        (["AGPL3"], "AGPL-3.0-only"),
        (["AGPL-v3+"], "AGPL-3.0-or-later"),
        (["GNU-AGPL-3"], "AGPL-3.0-only"),
        (["Affero-GPL-3"], "AGPL-3.0-only"),
        (["LGPL-2.1-or-later"], "LGPL-2.1-or-later"),
        (["GPL3+ with autoconf exception"], "LicenseRef-Debian-GPL-3-or-later-with-autoconf-exception"),
        (["Expat AND AGPL-3"], "AGPL-3.0-only AND MIT"),
        (["Expat Or AGPL-3"], "MIT OR AGPL-3.0-only"),
        # brackets are none of Debian's words
        (["(Expat or ISC) and AGPL-3"], "LicenseRef-Debian-Expat-or-ISC-and-AGPL-3"),
    ],
)
def test_a_machine_readable_copyright_file_names_all_licences(stated: list[str], expression: str) -> None:
    text = HEADER + "".join(
        f"Files: part{i}/*\nCopyright: A Person\nLicense: {s}\n a text\n\n" for i, s in enumerate(stated)
    )
    assert copyright_file(text) == Found(expression, "copyright (machine-readable)")


def test_any_other_copyright_file_is_known_by_the_texts_that_it_points_to() -> None:
    text = "It is free.\nSee `/usr/share/common-licenses/GPL-2' and /usr/share/common-licenses/LGPL-2.1."
    assert copyright_file(text).expression == "LicenseRef-Debian-GPL-2 AND LicenseRef-Debian-LGPL-2.1"
    assert copyright_file("It is mine.") == Found()


@pytest.mark.parametrize(
    "text",
    [
        HEADER + "Files: *\nLicense:\n AGPL-3\n",
        HEADER + "Files: *\nlicense: AGPL-3\n",
        "Upstream-Name: demo\n" + HEADER + "Files: *\nLicense: AGPL-3\n",
        "\n" + HEADER.upper() + "Files: *\nLicense: AGPL-3\n",
    ],
)
def test_fields_of_a_copyright_file_stand_in_any_order_and_case(text: str) -> None:
    assert copyright_file(text) == Found("AGPL-3.0-only", "copyright (machine-readable)")


def test_a_text_that_stands_in_a_copyright_file_counts_beside_those_that_it_points_to() -> None:
    text = "GNU AFFERO GENERAL\n PUBLIC LICENSE, Version 3\n\nPackaging: /usr/share/common-licenses/GPL-3\n"
    assert copyright_file(text).expression == "LicenseRef-Debian-AGPL AND LicenseRef-Debian-GPL-3"


def test_another_version_of_a_text_counts_beside_the_one_that_it_points_to() -> None:
    text = "GNU GENERAL PUBLIC LICENSE\n Version 3, 29 June 2007\n\nPackaging: /usr/share/common-licenses/"
    assert copyright_file(f"{text}GPL-2\n").expression == "LicenseRef-Debian-GPL-2 AND LicenseRef-Debian-GPL-3"
    assert copyright_file(f"{text}GPL-3\n").expression == "LicenseRef-Debian-GPL-3"
    # where nothing points to one of its family, it may be of any version
    assert copyright_file(f"{text}BSD\n").expression == "LicenseRef-Debian-BSD AND LicenseRef-Debian-GPL"


def test_many_blanks_in_a_licence_line_take_no_time() -> None:
    started = time.process_time()
    blanks = " " * 20_000
    assert copyright_file(f"{HEADER}Files: *\nLicense: ISC{blanks}or{blanks}Expat{blanks}x\n").expression
    assert time.process_time() - started < 5


@pytest.mark.parametrize("mode", ["w:xz", "w:gz"])
def test_the_copyright_file_is_read_out_of_the_package(tmp_path: Path, mode: Literal["w:xz", "w:gz"]) -> None:
    path = deb(tmp_path, "demo", HEADER + "Files: *\nLicense: ISC\n", mode=mode)
    assert read(artifact(path, DebianArtifact, "demo", stanza=""), path).expression == "ISC"


def test_packages_that_are_packed_by_zstd_are_read_as_well(tmp_path: Path) -> None:
    root = tmp_path / "demo"
    (root / "DEBIAN").mkdir(parents=True)
    (root / "DEBIAN/control").write_text(
        "Package: demo\nVersion: 1\nArchitecture: all\nMaintainer: A\nDescription: x\n"
    )
    (root / "usr/share/doc/demo").mkdir(parents=True)
    (root / "usr/share/doc/demo/copyright").write_text(HEADER + "Files: *\nLicense: ISC\n")
    path = tmp_path / "demo_1_all.deb"
    subprocess.run(["dpkg-deb", "-Zzstd", "--build", root, path], check=True, capture_output=True)
    package = artifact(path, DebianArtifact, "demo", stanza="Package: demo\n")
    assert read(package, path).expression == "ISC"
    path.write_bytes(path.read_bytes()[:-40])
    assert read(package, path).failed


@pytest.mark.parametrize("content", [b"no package", b"!<arch>\n", b"!<arch>\n" + b"x" * 60])
def test_a_package_that_cannot_be_read_has_no_known_licence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "demo_1.0_all.deb"
    path.write_bytes(content)
    found = read(artifact(path, DebianArtifact, "demo", stanza=""), path)
    assert found.expression is None
    assert "cannot be read" in found.source


def test_a_wheel_without_metadata_has_no_known_licence(tmp_path: Path) -> None:
    path = tmp_path / "demo-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("demo.py", "")
    found = read(artifact(path, PythonArtifact, "demo"), path)
    assert found.failed
    assert found.expression is None


def test_what_was_read_once_is_remembered_and_links_lead_to_the_licence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache(tmp_path / "cache")
    paths = [
        deb(tmp_path, "demo", HEADER + "Files: *\nLicense: ISC\n"),
        deb(tmp_path, "libdemo1", link="demo"),
        deb(tmp_path, "libdemo2", link="../doc/absent"),
    ]
    made = [artifact(path, DebianArtifact, path.name.partition("_")[0], stanza="") for path in paths]
    for described, path in zip(made, paths, strict=True):
        cache.path(described.sha256).write_bytes(path.read_bytes())
    first = read_all(made, cache)
    assert [first[a.sha256].expression for a in made] == ["ISC", "ISC", None]
    monkeypatch.setattr(licences, "read", lambda *_: pytest.fail("read again"))
    assert read_all(made, cache) == first


def test_what_could_not_be_read_is_read_again(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    path = deb(tmp_path, "demo", HEADER + "Files: *\nLicense: ISC\n")
    made = artifact(path, DebianArtifact, "demo", stanza="")
    assert read_all([made], cache)[made.sha256].failed
    cache.path(made.sha256).write_bytes(path.read_bytes())
    assert read_all([made], cache)[made.sha256].expression == "ISC"


@pytest.mark.parametrize(
    ("stated", "expression"),
    [
        ("MIT AND ISC", "MIT AND ISC"),
        ("GPLv2+ and LGPLv2+", "GPL-2.0-or-later AND LGPL-2.0-or-later"),
        (
            "(ASL 2.0 or BSD) and LGPLv2.1 and GPLv3",
            "(Apache-2.0 OR LicenseRef-BSD) AND LGPL-2.1-only AND GPL-3.0-only",
        ),
        ("GPLv2+ with exceptions", None),
        ("", None),
    ],
)
def test_an_rpm_package_says_its_licence_in_its_header(tmp_path: Path, stated: str, expression: str | None) -> None:
    path = tmp_path / "lib-2.5-1.el9.x86_64.rpm"
    path.write_bytes(b"")
    made = artifact(path, RpmArtifact, "lib", "2.5-1.el9", license=stated, arch="x86_64", keys=[])
    assert read_all([made], Cache(tmp_path / "cache"))[made.sha256].expression == expression


def test_threads_do_not_find_it_half_made() -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(3):
            licence.spdx.cache_clear()
            with ThreadPoolExecutor(4) as pool:
                assert set(pool.map(licence.expression, ["MIT AND Apache-2.0"] * 8)) == {"MIT AND Apache-2.0"}
    finally:
        sys.setswitchinterval(interval)


def long_deb(folder: Path, name: bytes, kind: bytes) -> Path:
    """A Debian package whose first member announces 64 MiB, and brings them as zeros that xz makes small."""
    head = tarfile.TarInfo(name.decode())
    head.type, head.size = kind, 64 << 20
    data = io.BytesIO()
    with lzma.open(data, "w", preset=0) as packed:
        packed.write(head.tobuf(tarfile.GNU_FORMAT))
        for _ in range(64):
            packed.write(bytes(1 << 20))
        packed.write(bytes(1024))
    path, content = folder / "long_1.0_all.deb", data.getvalue()
    size = f"{len(content):<10}"
    path.write_bytes(f"!<arch>\n{'data.tar.xz':<16}{0:<12}{0:<6}{0:<6}{100644:<8}{size}`\n".encode() + content)
    return path


@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_what_is_too_long_in_a_package_is_not_read(tmp_path: Path, kind: bytes) -> None:
    path = long_deb(tmp_path, b"usr/share/doc/long/copyright", kind)
    package = artifact(path, DebianArtifact, "long", stanza="Package: long\n")
    tracemalloc.start()
    try:
        found = read(package, path)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()
    assert found.failed
    assert "67108864 bytes" in found.source


def test_the_licence_of_an_endless_copyright_file_is_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each letter is looked at for each family, so that a file of a few letters packed held up a scan for minutes."""
    monkeypatch.setattr(copyright_files, "copyright_file", lambda text: pytest.fail(f"{len(text)} letters were read"))
    path = deb(tmp_path, "demo", "1 " * (1 << 20) + "x")
    with pytest.raises(ValueError, match="its copyright file has 2097153 bytes, 2097152 are allowed"):
        copyright_files.read("demo", path)


def test_a_part_without_a_size_is_an_error_that_is_told(tmp_path: Path) -> None:
    path = tmp_path / "odd_1.0_all.deb"
    path.write_bytes(f"!<arch>\n{'control.tar':<16}{0:<12}{0:<6}{0:<6}{100644:<8}{-60:<10}`\n".encode())
    assert "has no size" in read(artifact(path, DebianArtifact, "odd", stanza="Package: odd\n"), path).source
