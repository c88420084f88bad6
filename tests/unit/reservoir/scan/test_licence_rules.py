from __future__ import annotations

import pytest

from reservoir.artifacts.debian.licence import copyright_file
from reservoir.scan.licence_rules import judge
from reservoir.scan.policy import Licences
from reservoir.scan.report import Licence

AGPL = ["AGPL-3.0-only", "AGPL-3.0-or-later"]
GNU = [*AGPL, *(f"{name}-{which}" for name in ("GPL-3.0", "LGPL-2.1") for which in ("only", "or-later"))]


def passes(
    expression: str | None, deny: list[str], stated: dict[str, str] | None = None, allow: list[str] | None = None
) -> bool:
    package = Licence(kind="debian", name="demo", version="1", sha256="0" * 64, expression=expression, source="")
    return not judge([package], Licences(allow=allow or [], deny=deny, stated=stated or {}))


def debian(line: str, deny: list[str]) -> bool:
    return passes(copyright_file(f"Format: 1.0\n\nFiles: *\nLicense: {line}\n").expression, deny)


@pytest.mark.parametrize(
    "line",
    ["AGPLv3", "AGPL3", "GNU-AGPL-3", "Affero-GPL-3", "Affero", "MIT, AGPL-3", "MIT/AGPL-3", "MIT and/or AGPL-3",
     "MIT AND AGPL-3", "MIT with AGPL-3", "MIT | AGPL-3", "(MIT or ISC) and AGPL-3", "AGPL-3+ with exception",
     "MIT with Affero exception", "GPL-3+ with AGPL-3 exception", "custom", "MIT-noncommercial",
     "MIT, custom", "Zlib/custom", "permissive-custom", "BSD-with-network-copyleft", "public-domain-and-custom",
     "Expat and\n AGPL-3+", "Expat-or-Foo", "Expat-Server-Side-Public", "Apache-2.0-with-Commons-Clause",
     "Apache-2.0 with Commons-Clause exception", "Expat, Server-Side-Public"],
)  # fmt: skip
def test_a_spelling_of_a_denied_licence_does_not_pass(line: str) -> None:
    assert not debian(line, AGPL)


@pytest.mark.parametrize("field", ["Licence:", "License :", "licence\t:"])
def test_a_field_that_is_spelled_otherwise_is_read(field: str) -> None:
    text = f"Format: 1.0\n\nFiles: *\nLicense: Expat\n\nFiles: server\n{field} AGPL-3+\n"
    assert not passes(copyright_file(text).expression, AGPL)


@pytest.mark.parametrize(
    "line",
    ["GPL3+ with autoconf exception", "LPGL-2.1+", "GPL-3+ or-else", "BSD-GPL3", "GPL", "Expat-with-GNU-terms",
     "GPL-3+ with Bison exception"],
)  # fmt: skip
def test_what_may_be_of_a_denied_family_does_not_pass(line: str) -> None:
    assert not debian(line, GNU)


@pytest.mark.parametrize(
    "line",
    ["Expat", "GPL-3+", "GPL-3+ with Bison exception", "LGPL-2.1 with OpenSSL exception", "public-domain",
     "BSD-variant", "BSD-3-clause-Regents", "g10-permissive", "Artistic", "GFDL-NIV-1.3+", "GFDL-1.3+-no-invariant",
     "Unicode", "DONT-CHANGE-THE-GPL", "Apache-2.0 with LLVM-exception"],
)  # fmt: skip
def test_well_known_words_of_debian_pass(line: str) -> None:
    assert debian(line, AGPL)


GPL_3 = "GNU GENERAL PUBLIC LICENSE\n   Version 3, 29 June 2007\n\nThe GNU General Public License is a free licence.\n"


@pytest.mark.parametrize(
    "beside",
    ["See /usr/share/common-licenses/LGPL-2.1, the GNU Lesser General Public License.",
     "See /usr/share/common-licenses/Apache-2.0. Parts: GNU Lesser General Public License",
     "See /usr/share/common-licenses/GPL-2."],
)  # fmt: skip
def test_a_whole_text_beside_a_narrower_or_an_older_one_of_its_family_does_not_pass(beside: str) -> None:
    found = copyright_file(f"{beside}\n\nThe program is under this one:\n{GPL_3}").expression
    assert not passes(found, ["GPL-3.0-only", "GPL-3.0-or-later"])
    assert passes(found, AGPL)


@pytest.mark.parametrize(
    ("said", "denied"),
    [("under the AGPLv3 or later", "AGPL-3.0-only"),
     ("Affero General Public License version 3", "AGPL-3.0-only"),
     ("License: GNU AGPL v3", "AGPL-3.0-only"),
     ("GNU Affero GPL version 3", "AGPL-3.0-or-later"),
     (" * under the terms of the GNU Affero\n * General Public License version 3", "AGPL-3.0-only"),
     ("GNU AFFERO GENERAL PUBLIC LICENCE Version 3", "AGPL-3.0-only"),
     ("Server Side Public License, version 1", "SSPL-1.0"),
     ("# Server-Side\n# Public License", "SSPL-1.0"),
     ("covered by the SSPL", "SSPL-1.0"),
     ("Business Source License 1.1", "BUSL-1.1"),
     ("Elastic License 2.0", "Elastic-2.0"),
     ("the ELv2", "Elastic-2.0"),
     ("Eclipse Public License - v 2.0", "EPL-2.0"),
     ("Creative Commons Attribution-NonCommercial 4.0", "CC-BY-NC-4.0"),
     ("CC BY-NC-SA 4.0", "CC-BY-NC-SA-4.0"),
     ("PSF LICENSE AGREEMENT FOR PYTHON 3.11", "PSF-2.0"),
     ("PYTHON SOFTWARE FOUNDATION LICENSE VERSION 2", "Python-2.0"),
     ("developed by the OpenSSL Project for use in the OpenSSL Toolkit", "OpenSSL"),
     ("under the GNU General Public License, version 3 or later", "GPL-3.0-or-later"),
     ("under version 2 or 3 of the\n * GNU General Public License; version 3 of the GPL", "GPL-3.0-only"),
     ("the GNU General Public License as published by the Free Software Foundation; either version 3", "GPL-3.0-only"),
     ("parts: GPLv3+", "GPL-3.0-or-later"), ("parts: GPL-3", "GPL-3.0-only"), ("parts: LGPL3", "LGPL-3.0-only"),
     ("under the GNU Public License version 3", "GPL-3.0-only"),
     ("under the GNU Lesser Public License 3", "LGPL-3.0-only"), ("the GNU Library Public License", "LGPL-2.0-only"),
     ("the GNU GPL license, version 3", "GPL-3.0-only"), ("under the GPL versions 2 and 3", "GPL-3.0-only"),
     ("the GPL, either version 2 or version 3", "GPL-3.0-only"), ("versions 2 and 3 of the GPL", "GPL-3.0-only"),
     ("// Redistribution and use in source and\n// binary forms", "BSD-4-Clause"),
     ("the MIT licence with the Commons Clause", "AGPL-3.0-only")],
)  # fmt: skip
def test_a_licence_that_is_named_beside_a_pointer_to_another_does_not_pass(said: str, denied: str) -> None:
    found = copyright_file(f"This is demo.\n\n{said}\n\nPackaging: /usr/share/common-licenses/GPL-2\n").expression
    assert not passes(found, [denied])
    assert passes(found, ["APSL-2.0"]) or "Commons" in said


@pytest.mark.parametrize(
    "said",
    ["GNU General Public License, version 2, or any later version", "GPLv2+", "version 2 of the GPL, and 3 files",
     "GNU General Public License version 2 or (at your option) any later version.\n3 files",
     "the elastic collision of gplus 3", "GPL section 7", "linked with OpenSSL, for commercial and non-commercial use"],
)  # fmt: skip
def test_words_that_name_no_other_licence_add_none(said: str) -> None:
    found = copyright_file(f"{said}\n\nPackaging: /usr/share/common-licenses/GPL-2\n").expression
    assert found == "LicenseRef-Debian-GPL-2"


@pytest.mark.parametrize(
    ("text", "denied"),
    [("GNU AFFERO GENERAL PUBLIC LICENSE\n .\n Version 3, 19 November 2007", AGPL[0]),
     ("License: AGPL-3+", AGPL[0]),
     ("Server Side Public License\n VERSION 1, OCTOBER 16, 2018", "SSPL-1.0"),
     ("Elastic License 2.0", "Elastic-2.0"),
     ("GNU GENERAL PUBLIC LICENSE\n Version 3, 29 June 2007", "GPL-3.0-only"),
     ('"Commons Clause" License Condition v1.0', "AGPL-3.0-only"),
     ("COMMON DEVELOPMENT AND DISTRIBUTION LICENSE (CDDL) Version 1.0", "CDDL-1.0"),
     ("Creative Commons Attribution-NonCommercial 4.0 International Public License", "CC-BY-NC-4.0"),
     ("Attribution-NonCommercial-ShareAlike 4.0 International", "CC-BY-NC-SA-4.0"),
     ("Attribution-ShareAlike 3.0 Unported", "CC-BY-SA-3.0"),
     ("PolyForm Noncommercial License 1.0.0", "PolyForm-Noncommercial-1.0.0"),
     ("MICROSOFT RECIPROCAL LICENSE (MS-RL)", "MS-RL"), ('Open Software License ("OSL") v. 3.0', "OSL-3.0"),
     ('Academic Free License ("AFL") v. 3.0', "AFL-3.0"),
     ("SIL OPEN FONT LICENSE Version 1.1 - 26 February 2007", "OFL-1.1"),
     ("The Software shall be used for Good, not Evil.", "JSON"),
     ("You may use it under the terms of the GNU\n Affero General Public License as published", AGPL[0])],
)  # fmt: skip
def test_the_head_of_another_text_below_a_licence_field_does_not_pass(text: str, denied: str) -> None:
    found = copyright_file(f"Format: 1.0\n\nFiles: *\nLicense: Expat\n {text}\n All of it.\n").expression
    assert not passes(found, [denied])
    assert passes(copyright_file("Format: 1.0\n\nFiles: *\nLicense: Expat\n Not the AGPL-3.\n").expression, [denied])


@pytest.mark.parametrize("name", ["LicenseRef-AGPLv3", "LicenseRef-Vendor", "LicenseRef-MIT-NonCommercial"])
def test_a_name_of_ones_own_is_known_where_the_policy_states_it(name: str) -> None:
    assert not passes(name, AGPL)
    assert passes(name, AGPL, stated={"demo": name})
    # without a list there is nothing that it could be
    assert passes(name, [])


@pytest.mark.parametrize("line", ["BSL", "BSL-1", "BSL-1.1", "Business-Source-1.1"])
def test_a_short_name_of_two_licences_does_not_pass_where_one_is_denied(line: str) -> None:
    assert not debian(line, ["BUSL-1.1"])


@pytest.mark.parametrize("line", ["BSL", "BSL-1", "BSL-1.0"])
def test_the_licence_of_boost_passes_under_its_short_name(line: str) -> None:
    assert debian(line, AGPL)


def test_words_for_several_licences_stay_in_doubt_where_one_of_them_is_denied() -> None:
    assert passes("LicenseRef-BSD", AGPL)
    assert not passes("LicenseRef-BSD", ["BSD-4-Clause"])
    assert not passes("LicenseRef-Debian-GPL-3", ["GPL-3.0-only"])
    assert passes("LicenseRef-Debian-GPL-2", ["GPL-3.0-only"])


@pytest.mark.parametrize(
    ("expression", "deny", "passed"),
    [
        ("(Apache-2.0 OR GPL-3.0-only) AND MIT", ["Apache-2.0", "GPL-3.0-only AND MIT"], False),
        ("(Apache-2.0 OR ISC) AND MIT", ["Apache-2.0", "GPL-3.0-only AND MIT"], True),
        ("(ISC OR GPL-3.0-only) AND (MIT OR GPL-3.0-only)", ["GPL-3.0-only", "ISC AND MIT"], False),
        ("(ISC OR GPL-3.0-only OR Zlib) AND (MIT OR GPL-3.0-only)", ["GPL-3.0-only", "ISC AND MIT"], True),
        # a denied choice as a whole is not taken apart
        ("(MIT OR ISC) AND Zlib", ["(MIT OR ISC) AND Zlib"], False),
    ],
)
def test_a_choice_is_denied_where_each_way_to_choose_is(expression: str, deny: list[str], passed: bool) -> None:
    assert passes(expression, deny) is passed


def test_what_has_more_ways_to_choose_than_can_be_tried_is_in_doubt() -> None:
    wide = " AND ".join(f"(MIT OR Apache-2.0 OR LicenseRef-Debian-BSD-{n})" for n in range(30))
    assert passes(wide, AGPL)
    assert not passes(wide, ["MIT AND GPL-3.0-only AND Apache-2.0"])


def test_what_is_no_exception_hides_no_licence() -> None:
    assert passes("GPL-3.0-only WITH GCC-exception-3.1", AGPL)
    assert not passes("MIT WITH AGPL-3.0-only", AGPL)
    assert not passes("MIT WITH AGPL-3.0-only", [], allow=["MIT"])
    assert passes("GPL-3.0-only WITH GCC-exception-3.1", [], allow=["GPL-3.0-only"])
