"""The oldest packages that `pyproject.toml` admits: API, console and agent are made with them.

An index may have nothing newer, and a lock takes what the first index has.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from common import process
from reservoir.artifacts.python.wheels import uv
from reservoir.download import indexes

ROOT = Path(__file__).parents[2]
MADE = {
    "api": """
        from api.console.app import add_console
        from api.database import Database
        from api.endpoints.app import create_app
        from api.settings import Settings
        from tests.fakes.engine import FakeEngine

        settings = Settings(database_url="postgresql+psycopg://nobody@/none")
        print(len(create_app(settings, Database(settings.database_url), FakeEngine(), pages=add_console).routes))
    """,
    "agent": """
        from appliance.agent import app
        print(app.__doc__)
    """,
}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("oldest")
    found = indexes.machine()
    process.run([uv(), "venv", "--python", sys.executable, folder], env=found.env)
    wanted = ["--resolution", "lowest-direct", *found.options, f"{ROOT}[{','.join(MADE)}]"]
    process.run([uv(), "pip", "install", "--python", folder / "bin/python", *wanted], env=found.env)
    return folder / "bin/python"


@pytest.mark.parametrize("part", MADE)
def test_a_part_is_made_with_the_oldest_packages_that_it_admits(python: Path, part: str) -> None:
    words = "\n".join(line.strip() for line in MADE[part].splitlines())
    done = subprocess.run([python, "-c", words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
