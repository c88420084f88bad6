from __future__ import annotations

from pathlib import Path

import pytest

from common.errors import InputError
from reservoir.artifacts.python import pyproject


def test_a_projects_dependencies_count_with_the_extras_that_are_asked_for(tmp_path: Path) -> None:
    text = (
        '[project]\nname = "My_Demo"\ndependencies = ["rich"]\n[project.optional-dependencies]\na = ["x"]\nb = ["y"]\n'
    )
    (tmp_path / "pyproject.toml").write_text(text)
    before = pyproject.dependencies(tmp_path, ["a"])
    (tmp_path / "pyproject.toml").write_text(text.replace('"y"', '"z"'))
    assert pyproject.dependencies(tmp_path, ["a"]) == before
    (tmp_path / "pyproject.toml").write_text(text.replace('"x"', '"z"'))
    assert pyproject.dependencies(tmp_path, ["a"]) != before
    assert pyproject.name(tmp_path) == "my-demo"
    with pytest.raises(InputError, match=r"no extra named c.*a, b"):
        pyproject.dependencies(tmp_path, ["c"])


def test_an_extra_counts_with_those_of_the_project_that_it_names(tmp_path: Path) -> None:
    text = '[project]\nname = "My_Demo"\n[project.optional-dependencies]\nall = ["my-demo[a]"]\na = ["x", "y"]\n'
    (tmp_path / "pyproject.toml").write_text(text)
    before = pyproject.dependencies(tmp_path, ["all"])
    (tmp_path / "pyproject.toml").write_text(text.replace('"y"', '"z"'))
    assert pyproject.dependencies(tmp_path, ["all"]) != before
    (tmp_path / "pyproject.toml").write_text(text.replace('"y"', '"!"'))
    with pytest.raises(InputError, match="the extra a: "):
        pyproject.dependencies(tmp_path, ["all"])
