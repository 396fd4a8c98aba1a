"""The load on a Server in its short form: every request is answered. Nothing is judged by time;
`python -m benchmarks.server_load` is what measures."""

from __future__ import annotations

from benchmarks.server_load import SHORT, run


def bench_server_load() -> None:
    for name, measured in run(SHORT).items():
        assert measured.record.failures == [], name
        for kind in ("commit-state", "append operation"):
            assert measured.record.latencies_ms[kind], f"{name}: no {kind}"
