"""The settings file: what is in it stays, and what it says is what counts after the environment."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clumsies.cli.models import choose
from clumsies.config import model_profile, with_model_profile
from clumsies.errors import InvalidRequest
from clumsies.models.choice import chosen_profile

PATH = Path("config.toml")
KEPT = [
    "",
    "# mine\r\ncolour = 'blue'\r\n",
    '# no end of line\nmodel_profile = "other" # a word\n[server]\nurl = "x"',
    '[table]\nmodel_profile = "of the table"\n',
    'text = """\nmodel_profile = "in a text"\n"""\nmodel_profile = "old"\n',
    '"model_profile" = "quoted"\nlist = [\n  [1],\n]\n',
    "model_profile=1\n",
    "'model_profile' = '''\nspread'''\n",
]


@pytest.mark.parametrize("text", KEPT[:-1])
def test_a_choice_changes_one_line_and_nothing_else(text: str) -> None:
    made = with_model_profile(PATH, text.encode(), "compact").decode()
    assert tomllib.loads(made) == tomllib.loads(text) | {"model_profile": "compact"}
    lost = set(text.splitlines()) - set(made.splitlines())
    assert len(lost) <= 1
    assert all("model_profile" in line for line in lost)
    assert with_model_profile(PATH, made.encode(), "compact").decode() == made


def test_a_choice_that_is_spread_over_lines_is_left_to_its_writer() -> None:
    with pytest.raises(InvalidRequest, match="on one"):
        with_model_profile(PATH, KEPT[-1].encode(), "compact")


@given(
    st.dictionaries(
        st.sampled_from(["a", "b", "model_profile"]),
        st.one_of(st.integers(0, 9), st.text("ab=\n\"'", max_size=8)),
    ),
    st.sampled_from(["\n", "\r\n"]),
)
def test_any_settings_survive(settings: dict[str, int | str], end: str) -> None:
    text = "".join(f"{key} = {_toml(value)}{end}" for key, value in settings.items())
    made = with_model_profile(PATH, text.encode(), "multilingual").decode()
    assert tomllib.loads(made) == settings | {"model_profile": "multilingual"}


def _toml(value: int | str) -> str:
    if isinstance(value, int):
        return str(value)
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def test_the_environment_goes_before_the_file(tmp_path: Path) -> None:
    environment = {"CLUMSIES_HOME": str(tmp_path)}
    assert model_profile(environment) is None
    path = tmp_path / "config" / "config.toml"
    choose(path, "compact")
    assert model_profile(environment) == "compact"
    assert model_profile({**environment, "CLUMSIES_MODEL_PROFILE": "multilingual"}) == (
        "multilingual"
    )


def test_a_linked_settings_file_stays_a_link(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "clumsies.toml"
    real.parent.mkdir()
    real.write_text('colour = "blue"\n')
    path = tmp_path / "config" / "config.toml"
    path.parent.mkdir()
    path.symlink_to(real)
    choose(path, "compact")
    assert path.is_symlink()
    assert tomllib.loads(real.read_text()) == {"colour": "blue", "model_profile": "compact"}


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"a = 1\nb = \n", 2),
        (b"a = 1\n\n\xff\xfe\n", 3),
        (b"a = 1\na = 2\n", 2),
        (b"a = '''\nnever ended\n", 2),
    ],
)
def test_a_file_that_cannot_be_understood_is_named_with_its_line(
    tmp_path: Path, content: bytes, line: int
) -> None:
    path = tmp_path / "config" / "config.toml"
    path.parent.mkdir()
    path.write_bytes(content)
    for ask in (lambda: model_profile({"CLUMSIES_HOME": str(tmp_path)}), lambda: choose(path, "x")):
        with pytest.raises(InvalidRequest, match=f"config.toml, line {line}") as refused:
            ask()
        assert refused.value.code == "invalid_config"
        assert refused.value.details == {"path": str(path), "line": line}
    assert path.read_bytes() == content


@pytest.mark.parametrize("value", ["3", "''", "['compact']"])
def test_a_choice_that_is_no_name_is_refused(tmp_path: Path, value: str) -> None:
    path = tmp_path / "config" / "config.toml"
    path.parent.mkdir()
    path.write_text(f"model_profile = {value}\n")
    with pytest.raises(InvalidRequest, match="models use") as refused:
        model_profile({"CLUMSIES_HOME": str(tmp_path)})
    assert refused.value.code == "invalid_config"


def test_a_choice_of_a_profile_that_does_not_exist_lists_those_that_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLUMSIES_HOME", str(tmp_path))
    choose(tmp_path / "config" / "config.toml", "nonesuch")
    with pytest.raises(InvalidRequest, match="compact, multilingual"):
        chosen_profile()
