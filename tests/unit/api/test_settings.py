"""Settings of the control API, as the environment says them."""

from __future__ import annotations

from pathlib import Path

import pytest

from api import settings
from common.errors import InputError


@pytest.mark.parametrize(
    ("variables", "where"),
    [
        ({"PORT": "0"}, "PENSTOCK_API_PORT"),
        ({"PORT": "x"}, "PENSTOCK_API_PORT"),
        ({"DATABASE": "x"}, "PENSTOCK_API_DATABASE"),
        ({"SOCKET_MODE": "rw"}, "PENSTOCK_API_SOCKET_MODE"),
        ({"PVC_ROOT": "srv"}, "PENSTOCK_API_PVC_ROOT"),
        ({"TLS_CERT": "/x"}, "PENSTOCK_API_*"),
        ({"AGENT_CA": "/x"}, "PENSTOCK_API_*"),
        ({"FGPU_PER_GPU": "7"}, "PENSTOCK_API_STEPS_PER_FGPU"),
    ],
)
def test_bad_settings_are_named(variables: dict[str, str], where: str) -> None:
    with pytest.raises(InputError) as raised:
        settings.load({f"PENSTOCK_API_{name}": value for name, value in variables.items()})
    assert raised.value.problems[0].where == where


def test_good_settings() -> None:
    loaded = settings.load(
        {
            "PENSTOCK_API_SOCKET": "/run/x",
            "PENSTOCK_API_SOCKET_MODE": "0666",
            "PENSTOCK_API_PVC_ROOT": "",
            "HOME": "/",
        }
    )
    assert (loaded.socket, loaded.socket_mode, loaded.pvc_root) == (Path("/run/x"), 0o666, None)
    assert loaded.trusts_client_headers
    assert not settings.load({}).trusts_client_headers
    assert settings.load({"PENSTOCK_API_TRUST_CLIENT_HEADERS": "1"}).trusts_client_headers
