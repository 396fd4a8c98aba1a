"""How soon the MCP proxy answers, against an interpreter that only imports asyncio and json.

Each round measures both, one after the other, so that a machine that is busy for a while is busy
for both; `over_asyncio_json` is the ratio of the medians and has to stay under 3.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SERVE = ("-m", "clumsies.daemon.main", "mcp", "serve", "--no-start")
BASELINE = "import asyncio, json"
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "benchmark", "version": "1"},
    },
}
LIST_TOOLS = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
_TIMEOUT_S = 60.0


def bench_proxy_initialize(benchmark: Any, short: bool) -> None:
    """From the start of the process to the answer of `initialize`."""
    _against_baseline(benchmark, [INITIALIZE], short)


def bench_proxy_tools(benchmark: Any, short: bool) -> None:
    """From the start of the process to the answer of `tools/list`."""
    _against_baseline(benchmark, [INITIALIZE, LIST_TOOLS], short)


def _against_baseline(benchmark: Any, messages: list[dict[str, Any]], short: bool) -> None:
    lines = "".join(json.dumps(message) + "\n" for message in messages).encode()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    baseline_s: list[float] = []
    served: list[subprocess.Popen[bytes]] = []

    def import_only() -> None:
        started = time.perf_counter()
        subprocess.run([sys.executable, "-P", "-c", BASELINE], env=environment, check=True)
        baseline_s.append(time.perf_counter() - started)

    def answered() -> None:
        proxy = subprocess.Popen(
            [sys.executable, "-P", *SERVE],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        served.append(proxy)
        assert proxy.stdin is not None
        assert proxy.stdout is not None
        proxy.stdin.write(lines)
        proxy.stdin.flush()
        for message in messages:
            assert json.loads(proxy.stdout.readline())["id"] == message["id"]

    def end_all(*_: object) -> None:
        while served:
            served.pop().communicate(timeout=_TIMEOUT_S)

    def between() -> None:
        end_all()
        import_only()

    import_only()
    answered()  # Byte code is compiled once, before anything counts.
    baseline_s.clear()
    benchmark.pedantic(answered, setup=between, rounds=7 if short else 25)
    end_all()
    ratio = benchmark.stats.stats.median / median(baseline_s)
    benchmark.extra_info["over_asyncio_json"] = ratio
