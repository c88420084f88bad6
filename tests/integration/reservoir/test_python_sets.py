"""Real sets of Python packages, installed by the ordinary pip on bare machines that reach the publication alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.integration.reservoir.conftest import Machine, docker, lasting_cache, penstock

SCIENCE = ["numpy", "scipy", "pandas", "jupyterlab", "mlflow"]
# every newer boto3 wants an urllib3 that this line forbids, so the resolver has to go back through years of releases
HARD = ["boto3", "urllib3<1.25.4"]
LIST = "import importlib.metadata as m, json; print(json.dumps({d.name.lower(): d.version for d in m.distributions()}))"
TARGETS = [
    {"name": "debian12", "release": "bookworm", "python": "3.11"},
    {"name": "debian13", "release": "trixie", "python": "3.13"},
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site that publishes both sets; the big one for one target, the hard one for two."""
    folder = tmp_path_factory.mktemp("sets")
    groups = {"science": {"requirements": SCIENCE, "targets": ["debian12"]}, "hard": HARD}
    content = {
        "schema": 1,
        "name": "sets",
        "version": "1.0",
        "targets": TARGETS,
        "python": {"requirements": ["pip"], "groups": groups},
    }
    (folder / "manifest.yml").write_text(yaml.safe_dump(content))
    environment = {
        "PENSTOCK_CACHE": str(lasting_cache("sets")),
        "PENSTOCK_SIGNING_KEY": str(folder / "maker.key"),
    }
    penstock("lock", folder / "manifest.yml", environment=environment)
    words: list[str | Path] = ["build", folder / "manifest.yml", "--output", folder / "out", "--json"]
    built = json.loads(penstock(*words, environment=environment).stdout)
    penstock("import", "--trust-first", built["bundle"], "--root", folder / "site")
    penstock("publish", "--root", folder / "site")
    folder.chmod(0o755)
    return folder / "site"


@pytest.fixture(scope="module")
def machines(site: Path, node_images: dict[str, str]) -> Iterator[dict[str, Machine]]:
    """A machine of each target without any network, on which the publication is mounted and /tmp lies in memory."""
    words = ["--network", "none", "--volume", f"{site}:/site:ro", "--tmpfs", "/tmp:exec"]
    found = {
        release: Machine(docker("run", "--detach", *words, image, "sleep", "infinity"))
        for release, image in node_images.items()
    }
    try:
        yield found
    finally:
        for machine in found.values():
            docker("rm", "--force", "--volumes", machine.identity, check=False)


def install(machine: Machine, requirements: list[str]) -> dict[str, str]:
    """Install with pip into a fresh environment; return what is there, name to version."""
    pip = machine.run("ls /site/current/pypi/packages/pip-*.whl").strip()
    machine.run("python3 -m venv --clear --without-pip /tmp/venv")
    wanted = " ".join(f"'{requirement}'" for requirement in requirements)
    python = f"cd /tmp && PYTHONPATH={pip} venv/bin/python -m pip"
    # what is imported is compiled then
    options = "--no-compile --no-cache-dir --index-url file:///site/current/pypi/simple"
    machine.run(f"{python} install {options} {wanted}")
    machine.run(f"{python} check")
    found: dict[str, str] = json.loads(machine.run(f'/tmp/venv/bin/python -c "{LIST}"'))
    return found


def test_the_scientific_set_installs_and_works(machines: dict[str, Machine]) -> None:
    found = install(machines["bookworm"], SCIENCE)
    assert set(SCIENCE) <= found.keys()
    said = machines["bookworm"].run(
        '/tmp/venv/bin/python -c "import numpy, scipy.linalg, pandas, mlflow; '
        'print(scipy.linalg.det(numpy.eye(3)), pandas.Series([1, 2]).sum())" && /tmp/venv/bin/jupyter lab --version'
    )
    assert "1.0 3" in said
    assert found["jupyterlab"] in said


@pytest.mark.parametrize("release", ["bookworm", "trixie"])
def test_the_set_that_forces_the_resolver_back_installs(machines: dict[str, Machine], release: str) -> None:
    found = install(machines[release], HARD)
    assert re.fullmatch(r"1\.(\d|1\d|2[0-4]|25\.[0-3])(\..*)?", found["urllib3"])
    assert "botocore" in found
    if release == "bookworm":
        # urllib3 of those years does not load in Python 3.12 and later
        machines[release].run("/tmp/venv/bin/python -c 'import boto3.session'")
