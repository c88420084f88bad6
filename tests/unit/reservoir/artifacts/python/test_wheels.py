from __future__ import annotations

from pathlib import Path

import pytest

from common import process
from common.errors import InputError, ProcessError
from reservoir.artifacts.python import wheels
from reservoir.download import indexes
from reservoir.manifest.model import Project, Target
from tests.unit.reservoir.parts import wheel

TARGET = Target(name="debian12", release="bookworm", python="3.11")
HASH = "0" * 64
PLAIN = indexes.Indexes(index=None, extra=[], links=[], offline=False, certificates=None)


def locked(*filenames: str) -> str:
    listed = ", ".join(
        f'{{ url = "https://x.example/p%2Bq/{name}", hashes = {{ sha256 = "{HASH}" }} }}' for name in filenames
    )
    return f'lock-version = "1.0"\n[[packages]]\nname = "demo"\nversion = "1.0"\nwheels = [{listed}]\n'


def resolve(monkeypatch: pytest.MonkeyPatch, answer: str) -> list[wheels.Wheel]:
    monkeypatch.setattr(process, "run", lambda *_, **__: answer)
    return wheels.closure(["demo"], [], TARGET, PLAIN, "m.yml: python")


@pytest.mark.parametrize(
    ("best", "others"),
    [
        ("demo-1.0-cp311-cp311-manylinux_2_28_x86_64.whl", ["demo-1.0-cp311-cp311-manylinux_2_17_x86_64.whl"]),
        ("demo-1.0-cp311-cp311-manylinux2014_x86_64.whl", ["demo-1.0-cp39-abi3-manylinux_2_28_x86_64.whl"]),
        ("demo-1.0-cp39-abi3-manylinux_2_28_x86_64.whl", ["demo-1.0-py3-none-any.whl"]),
        ("demo-1.0-py3-none-any.whl", ["demo-1.0-cp311-cp311-manylinux_2_39_x86_64.whl"]),
        ("demo-1.0-py3-none-any.whl", ["demo-1.0-cp311-cp311-musllinux_1_2_x86_64.whl"]),
        ("demo-1.0-py3-none-any.whl", ["demo-1.0-cp311-cp311-manylinux_2_28_aarch64.whl"]),
        ("demo-1.0-2-py3-none-any.whl", ["demo-1.0-1-py3-none-any.whl"]),
    ],
)
def test_the_wheel_that_the_target_would_choose_is_taken(
    monkeypatch: pytest.MonkeyPatch, best: str, others: list[str]
) -> None:
    for order in ([best, *others], [*others, best]):
        assert [wheel.filename for wheel in resolve(monkeypatch, locked(*order))] == [best]


def test_a_package_without_a_wheel_for_the_target_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"m.yml: python: demo 1.0 has no wheel for .* amd64.*Hint: .*`python.sdists`"):
        resolve(monkeypatch, locked("demo-1.0-cp312-cp312-manylinux_2_28_x86_64.whl"))


def test_what_uv_cannot_solve_names_the_place_in_the_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> str:
        raise ProcessError("uv ended with code 1:\n  demo has no usable wheels", where="uv pip")

    monkeypatch.setattr(process, "run", fail)
    with pytest.raises(
        InputError, match=r"m.yml: python: no set of wheels .* no usable wheels.*Hint: .*`python.sdists`"
    ):
        wheels.closure(["demo"], [], TARGET, PLAIN, "m.yml: python")


def test_the_indexes_of_this_machine_come_from_pip_with_the_environment_last(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = "\n".join(
        [
            ":env:.find-links='/wheels'",
            "global.cert='/etc/ca.crt'",
            "global.extra-index-url='file:///a/simple\\nfile:///b/simple'",
            "global.find-links='/old'",
            "global.index-url='https://index.example/simple'",
            "install.no-index='true'",
            "list.format='json'",
        ]
    )
    monkeypatch.setattr(process, "run", lambda *_, **__: listed)
    found = indexes.machine()
    assert found == indexes.Indexes(
        "https://index.example/simple", ["file:///a/simple", "file:///b/simple"], ["/wheels"], True, "/etc/ca.crt"
    )
    assert found.options == ["--index-strategy", "unsafe-first-match", "--no-index"]
    assert found.env["SSL_CERT_FILE"] == "/etc/ca.crt"


def test_addresses_of_indexes_stand_in_no_command_line() -> None:
    secret = "https://ada:secret@index.example/simple"
    found = indexes.Indexes(secret, [secret, "file:///b"], [secret, "/wheels,old"], offline=False, certificates=None)
    assert "secret" not in " ".join(found.options)
    assert found.env["UV_DEFAULT_INDEX"] == secret
    assert found.env["UV_INDEX"] == f"{secret} file:///b"
    assert found.env["UV_FIND_LINKS"] == f"{secret},file:///wheels%2Cold"


def test_the_first_index_that_has_a_fitting_version_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place, versions in {"mine": ["1.0"], "other": ["1.0", "9.0"]}.items():
        (tmp_path / place / "demo").mkdir(parents=True)
        made = [wheel(tmp_path / place / "demo", "demo", version) for version in versions]
        page = "".join(f'<a href="{path.name}">{path.name}</a>' for path in made)
        (tmp_path / place / "demo/index.html").write_text(page)
    (mine, other) = ((tmp_path / place).as_uri() for place in ("mine", "other"))
    both = indexes.Indexes(other, [mine], [], offline=False, certificates=None)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    (found,) = wheels.closure(["demo"], [], TARGET, both, "m.yml: python")
    assert found.version == "1.0"
    assert found.url.startswith(mine)


@pytest.mark.parametrize(
    ("filename", "fits"),
    [
        ("demo-1.0-py3-none-any.whl", True),
        ("demo-1.0-py3-none-manylinux_2_17_x86_64.whl", True),
        ("demo-1.0-py3-none-manylinux_2_17_aarch64.whl", False),
        ("demo-1.0-py3-none-manylinux_2_40_x86_64.whl", False),
        ("demo-1.0-cp312-cp312-linux_x86_64.whl", False),
    ],
)
def test_a_wheel_runs_where_interpreter_architecture_and_c_library_fit(filename: str, fits: bool) -> None:
    assert wheels.runs_on(filename, TARGET) is fits


def test_a_folder_without_a_project_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"pyproject.toml: there is no Python project"):
        wheels.closure([], [(Project(path="."), tmp_path)], TARGET, PLAIN, "m.yml: python")
