"""The round trip of `health` between this process and a real daemon, over its Unix socket."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from clumsies.config import daemon_places
from clumsies.daemon.client import DaemonClient
from clumsies.errors import NotReady

ROOT = Path(__file__).resolve().parents[1]
START_LIMIT_S = 60.0


def bench_health_round_trip(benchmark: Any, short: bool) -> None:
    """One call on a connection that is there, which is how the proxy and the commands call."""
    with tempfile.TemporaryDirectory(prefix="clumsies-") as home:
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "CLUMSIES_HOME": home,
            "CLUMSIES_MODEL_PROFILE": "compact",
        }
        daemon = subprocess.Popen(
            [sys.executable, "-P", "-m", "clumsies.daemon.main", "run"], env=environment
        )
        try:
            with DaemonClient(daemon_places(environment).socket, "benchmark") as client:
                _wait_until_ready(client)
                benchmark.pedantic(
                    client.call, args=("health",), rounds=200 if short else 2_000, warmup_rounds=20
                )
        finally:
            daemon.terminate()
            daemon.wait(START_LIMIT_S)
    benchmark.extra_info["median_ms"] = benchmark.stats.stats.median * 1000


def _wait_until_ready(client: DaemonClient) -> None:
    end = time.monotonic() + START_LIMIT_S
    while True:
        try:
            client.call("health")
            return
        except NotReady:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
