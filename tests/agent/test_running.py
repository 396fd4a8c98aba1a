"""A call under way: one end, and no word after it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from clumsies.agent.running import RunningCall


def test_progress_grows_until_the_end_and_stops_there() -> None:
    sent: list[Any] = []
    call = RunningCall("token", sent.append)
    call.report("one")
    call.report("two")
    assert call.end()
    call.report("too late")
    assert [each["params"] for each in sent] == [
        {"progressToken": "token", "progress": 1, "message": "one"},
        {"progressToken": "token", "progress": 2, "message": "two"},
    ]
    assert all(each["method"] == "notifications/progress" for each in sent)


def test_who_did_not_ask_is_told_nothing() -> None:
    sent: list[Any] = []
    RunningCall(None, sent.append).report("one")
    assert sent == []


@pytest.mark.parametrize("enders", [2, 8])
def test_one_alone_ends_it(enders: int) -> None:
    call = RunningCall(None, lambda _: None)
    together = threading.Barrier(enders)
    ended: list[bool] = []

    def end() -> None:
        together.wait(30)
        ended.append(call.end())

    threads = [threading.Thread(target=end) for _ in range(enders)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(ended) == [False] * (enders - 1) + [True]
    assert call.cancel.is_set()
