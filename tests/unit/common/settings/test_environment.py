"""Reading settings from the variables of an environment."""

from __future__ import annotations

from typing import Annotated

import pytest
from pydantic import Field, model_validator
from pydantic_settings import SettingsConfigDict

from common.errors import InputError
from common.settings.environment import ServiceSettings, load
from common.settings.options import FOLDERS, PAIRS, WORDS

FILE = "/etc/kettle.env"
HINT = f"correct it; a node has it from {FILE}"


class Kettle(ServiceSettings):
    """A service that boils water."""

    model_config = SettingsConfigDict(env_prefix="KETTLE_", env_ignore_empty=True)

    litres: float = Field(gt=0)
    degrees: int = Field(default=100, le=100)
    teas: Annotated[tuple[str, ...], WORDS] = ()
    shelves: Annotated[tuple[str, ...], FOLDERS] = ()
    minutes: Annotated[dict[str, int], PAIRS] = Field(default={})

    @model_validator(mode="after")
    def _not_dry(self) -> Kettle:
        if self.teas and self.litres < 0.2:
            raise ValueError("too little water for tea")
        return self


def read(**variables: str) -> Kettle:
    return load(Kettle, {"HOME": "/root", "KETTLE_LITRES": "1", **variables}, file=FILE)


def problems(**variables: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        read(**variables)
    return [str(problem) for problem in caught.value.problems]


def test_what_no_variable_says_has_the_models_default() -> None:
    assert (read().litres, read().degrees, read().teas) == (1.0, 100, ())


def test_an_empty_variable_says_nothing() -> None:
    assert read(KETTLE_DEGREES="").degrees == 100


@pytest.mark.parametrize("teas", ["green black", "green, black", '["green", "black"]'])
def test_words_are_text_or_json(teas: str) -> None:
    assert read(KETTLE_TEAS=teas).teas == ("green", "black")


@pytest.mark.parametrize("word", ["1e3", "null", "007", "true"])
def test_a_word_that_json_would_take_for_something_else_stays_a_word(word: str) -> None:
    assert read(KETTLE_TEAS=word).teas == (word,)


@pytest.mark.parametrize("shelves", ["/left:/right", '["/left", "/right"]'])
def test_folders_are_text_or_json(shelves: str) -> None:
    assert read(KETTLE_SHELVES=shelves).shelves == ("/left", "/right")


@pytest.mark.parametrize("minutes", ["green=2:black=4", '{"green": 2, "black": 4}'])
def test_pairs_are_text_or_json(minutes: str) -> None:
    assert read(KETTLE_MINUTES=minutes).minutes == {"green": 2, "black": 4}


def test_every_problem_is_named_at_once_with_variable_reason_and_hint() -> None:
    assert problems(KETTLE_LITRES="-1", KETTLE_DEGREES="hot", KETTLE_MINUTES="green", KETTLE_COLOUR="red") == [
        f"KETTLE_LITRES: is not more than 0. Hint: {HINT}",
        f"KETTLE_DEGREES: is not a whole number. Hint: {HINT}",
        f"KETTLE_MINUTES: a pair is written NAME=VALUE, and green is none. Hint: {HINT}",
        f"KETTLE_COLOUR: unknown setting. Hint: remove it, or correct its spelling; a node has it from {FILE}",
    ]


def test_a_variable_that_is_missing() -> None:
    assert problems(KETTLE_LITRES="") == ["KETTLE_LITRES: the variable is not set. Hint: set it in /etc/kettle.env"]


def test_what_several_variables_have_together() -> None:
    [problem] = problems(KETTLE_LITRES="0.1", KETTLE_TEAS="green")
    assert problem.startswith("KETTLE_*: too little water for tea.")


def test_broken_json_is_text_that_the_model_judges() -> None:
    [problem] = problems(KETTLE_MINUTES='{"green": 2')
    assert problem.startswith("KETTLE_MINUTES: a pair is written NAME=VALUE")


def test_a_wrong_value_is_not_told_as_it_may_be_a_secret() -> None:
    assert "hunter2" not in "".join(problems(KETTLE_DEGREES="hunter2"))


def test_settings_that_a_program_makes_look_at_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KETTLE_DEGREES", "80")
    assert Kettle(litres=1).degrees == 100
    assert read().degrees == 100
