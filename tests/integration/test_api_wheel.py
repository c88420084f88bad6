"""The wheel carries what the API needs beside its code: migrations, pages, and the vendored files of the pages."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_wheel_is_whole(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert names >= {
        "api/migrations/env.py",
        "api/migrations/versions/0001_the_first_tables.py",
        "api/console/templates/base.html",
        "api/static/console/console.css",
        "api/static/console/console.js",
        "api/static/console/filled-in.js",
        "api/static/docs.html",
        "api/static/docs.js",
        "api/static/vendor/swagger-ui/swagger-ui-bundle.js",
        "api/static/vendor/swagger-ui/swagger-ui.css",
        "api/static/vendor/swagger-ui/LICENSE",
        "api/static/vendor/htmx/htmx.min.js",
        "api/static/vendor/htmx/LICENSE",
        "api/static/vendor/idiomorph/idiomorph-ext.min.js",
        "api/static/vendor/idiomorph/LICENSE",
    }, "run tools/vendor.sh"
