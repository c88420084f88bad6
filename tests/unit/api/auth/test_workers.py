"""The workers of a site, as a file names them."""

from __future__ import annotations

from pathlib import Path

from api.auth.workers import Workers


def test_the_file_names_them_and_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "agents"
    path.write_text("worker1\nworker2\n")
    workers = Workers(path)
    assert [workers.has(name) for name in ("worker1", "worker2", "storage1", "")] == [True, True, False, False]
    (tmp_path / "new").write_text("storage1\n")
    (tmp_path / "new").replace(path)
    assert [workers.has(name) for name in ("worker1", "storage1")] == [False, True]


def test_a_file_that_goes_away_changes_nothing_and_one_that_never_was_lets_nobody_in(tmp_path: Path) -> None:
    path = tmp_path / "agents"
    workers = Workers(path)
    assert not workers.has("worker1")
    path.write_text("worker1\n")
    assert workers.has("worker1")
    path.unlink()
    assert workers.has("worker1")


def test_without_a_file_as_developers_serve_everybody_is_one() -> None:
    assert Workers(None).has("whoever")
