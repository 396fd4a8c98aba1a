"""What the environment says of the hub."""

from __future__ import annotations

from pathlib import Path

import pytest

from clumsies.config import HubSettings, hub_settings


def test_nothing_set_means_the_public_hub_and_its_usual_cache() -> None:
    usual = Path("~/.cache/huggingface/hub").expanduser()
    assert hub_settings({}) == HubSettings(endpoint=None, cache=usual, token=None, offline=False)


@pytest.mark.parametrize(
    ("environ", "cache"),
    [
        ({"HF_HOME": "/srv/hf"}, "/srv/hf/hub"),
        ({"HF_HOME": "/srv/hf", "HF_HUB_CACHE": "/srv/cache"}, "/srv/cache"),
        ({"XDG_CACHE_HOME": "/srv/xdg"}, "/srv/xdg/huggingface/hub"),
        ({"XDG_CACHE_HOME": "/srv/xdg", "HF_HOME": "/srv/hf"}, "/srv/hf/hub"),
    ],
)
def test_the_cache_is_the_hubs_own(environ: dict[str, str], cache: str) -> None:
    assert hub_settings(environ).cache == Path(cache)


def test_a_mirror_and_a_token_are_taken_without_their_blanks() -> None:
    found = hub_settings({"HF_ENDPOINT": " https://mirror.example/ ", "HF_TOKEN": "hf_x\n"})
    assert (found.endpoint, found.token) == ("https://mirror.example", "hf_x")
    assert "hf_x" not in repr(found)


@pytest.mark.parametrize("blank", ["", "  "])
def test_what_is_blank_is_not_set(blank: str) -> None:
    found = hub_settings({"HF_ENDPOINT": blank, "HF_TOKEN": blank, "HF_HUB_OFFLINE": blank})
    assert (found.endpoint, found.token, found.offline) == (None, None, False)


@pytest.mark.parametrize(("value", "offline"), [("1", True), ("ON", True), ("0", False)])
def test_offline_is_a_switch(value: str, offline: bool) -> None:
    assert hub_settings({"HF_HUB_OFFLINE": value}).offline is offline
