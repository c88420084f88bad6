"""What is made of the words of ssh, sudo and Ansible; the words themselves come from a real sshd elsewhere."""

from __future__ import annotations

import pytest

from appliance.site.refused_access import explained

VARIABLES = {"ansible_host": "10.0.0.2", "ansible_port": 22, "ansible_user": "installer"}
REFUSED = "Data could not be sent: installer@10.0.0.2: Permission denied (publickey)."
CHANGED = "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @"


@pytest.mark.parametrize(
    ("said", "more", "line"),
    [
        (REFUSED, {}, "`ssh-copy-id installer@10.0.0.2`"),
        (
            REFUSED,
            {"ansible_port": 2222, "ansible_ssh_private_key_file": "/k"},
            "`ssh-copy-id -i /k -p 2222 installer@10.0.0.2`",
        ),
        (CHANGED, {}, "`ssh-keygen -f /known -R 10.0.0.2`"),
        (CHANGED, {"ansible_port": 2222}, "`ssh-keygen -f /known -R '[10.0.0.2]:2222'`"),
        (
            "sudo: a password is required",
            {},
            "`echo 'installer ALL=(ALL:ALL) NOPASSWD: ALL' > /etc/sudoers.d/penstock`",
        ),
    ],
)
def test_the_hint_holds_a_line_to_mend_it(said: str, more: dict[str, object], line: str) -> None:
    found = explained(said, "second", VARIABLES | more, "/known")
    assert found is not None
    assert line in found[1]
    assert "second" in found[0]


def test_other_words_are_left_as_they_are() -> None:
    assert explained("no room left", "second", VARIABLES, "/known") is None
