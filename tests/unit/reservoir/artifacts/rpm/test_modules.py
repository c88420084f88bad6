from __future__ import annotations

import pytest

from common.errors import InputError, IntegrityError
from reservoir.artifacts.rpm import modules

WHERE = "manifest.yml: rpm.tools.modules"


def text(spoken: str, *packages: str, version: int = 1, context: str = "", requires: str = "{platform: [el9]}") -> str:
    """Write a module as repositories do."""
    name, _, stream = spoken.partition(":")
    return f"""\
---
document: modulemd
version: 2
data:
  name: {name}
  stream: {stream}
  version: {version}
  context: {context}
  dependencies:
  - requires: {requires}
  artifacts:
    rpms: [{", ".join(packages)}]
...
"""


def enabled(written: str, *wanted: str) -> list[str]:
    """Return the streams and versions that the wanted ones bring."""
    active = modules.enable(modules.parse(written, "modules.yaml"), [(stream, WHERE) for stream in wanted])
    return [f"{module.spoken}@{module.version}" for module in active]


def test_streams_are_text_whatever_they_look_like() -> None:
    (module,) = modules.parse(text("perl:5.10"), "modules.yaml")
    assert module.spoken == "perl:5.10"


def test_other_documents_of_the_list_are_passed_over() -> None:
    defaults = "---\ndocument: modulemd-defaults\nversion: 1\ndata: {module: perl, stream: '5.10'}\n"
    assert [module.name for module in modules.parse(defaults + text("perl:5.10"), "modules.yaml")] == ["perl"]


def test_a_document_travels_as_it_was_written() -> None:
    (module,) = modules.parse(text("perl:5.10"), "modules.yaml")
    assert modules.parse(module.text, "modules.yaml") == [module]
    assert module.text in text("perl:5.10")


@pytest.mark.parametrize("written", ["---\ndocument: modulemd\ndata: {name: a}\n", "---\na: [\n"])
def test_a_malformed_list_is_refused(written: str) -> None:
    with pytest.raises(IntegrityError, match=r"modules.yaml: is no list of modules"):
        modules.parse(written, "modules.yaml")


def test_the_newest_build_of_a_stream_is_taken() -> None:
    written = text("a:1", version=9) + text("a:1", version=10) + text("a:2", version=11)
    assert enabled(written, "a:1") == ["a:1@10"]


def test_a_required_module_comes_along_where_one_stream_alone_will_do() -> None:
    written = text("a:1", requires="{base: []}") + text("base:x")
    assert enabled(written, "a:1") == ["a:1@1", "base:x@1"]
    written = text("a:1", requires="{base: [-y]}") + text("base:x") + text("base:y")
    assert enabled(written, "a:1") == ["a:1@1", "base:x@1"]


def test_a_choice_among_streams_is_left_to_the_manifest() -> None:
    written = text("a:1", requires="{base: []}") + text("base:x") + text("base:y")
    with pytest.raises(InputError, match="add one of these to `modules`: base:x, base:y"):
        enabled(written, "a:1")
    assert enabled(written, "a:1", "base:y") == ["a:1@1", "base:y@1"]


def test_the_build_is_taken_that_goes_with_the_other_streams() -> None:
    written = (
        text("a:1", context="x", version=2, requires="{base: [x]}")
        + text("a:1", context="y", version=1, requires="{base: [y]}")
        + text("base:x")
        + text("base:y")
    )
    assert enabled(written, "a:1", "base:y") == ["a:1@1", "base:y@1"]
    with pytest.raises(InputError, match="needs base:z"):
        enabled(text("b:1", requires="{base: [z]}") + text("base:x"), "b:1", "base:x")


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (["b:1"], "there is no module b:1.*add a source"),
        (["a:3"], "there is no module a:3.*use one of: a:1, a:2"),
        (["a:1", "a:2"], "wanted in two streams, 1 and 2"),
    ],
)
def test_what_cannot_be_enabled_is_named(wanted: list[str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        enabled(text("a:1") + text("a:2"), *wanted)


def test_packages_of_other_streams_are_hidden_and_names_of_active_ones_shadowed() -> None:
    written = text("a:1", "a-0:1-1.x86_64", "shared-0:1-1.noarch") + text("a:2", "a-0:2-1.x86_64", "a-0:2-1.src")
    first, second = modules.parse(written + text("b:1", "shared-0:1-1.noarch"), "modules.yaml")[:2]
    assert modules.hidden([first, second], [first]) == {"a-0:2-1.x86_64", "a-0:2-1.src"}
    assert modules.shadowed([second]) == {"a"}
    assert modules.owners([first, second], "a-0:2-1.x86_64") == ["a:2"]
