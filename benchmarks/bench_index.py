"""Building an index and keeping it up to date, without the embedder's time.

The synthetic models make the full build as cheap as it can be, so an update's share of it is the
largest there can be.
"""

from __future__ import annotations

from itertools import count
from typing import Any

from benchmarks.conftest import Indexes
from clumsies.types import Resource

_EDITIONS = count(1)


def bench_build(benchmark: Any, indexes: Indexes, units: int) -> None:
    indexes.memory(units)
    built = benchmark.pedantic(indexes.index, (units,), rounds=1)
    # Built here unless a selection of benchmarks needed it earlier; its own clock knows.
    benchmark.extra_info["build_s"] = built.build_s
    benchmark.extra_info["bytes"] = sum(len(r.content.encode()) for r in built.memory.resources)
    head = built.engine.head()
    assert head is not None
    benchmark.extra_info["units"] = head.unit_count


def bench_update(benchmark: Any, indexes: Indexes, units: int, short: bool) -> None:
    """One resource of eight sections gets another last section."""
    built = indexes.index(units)
    built.engine.warm()
    number = len(built.memory.resources) // 2

    def another() -> tuple[tuple[list[Resource]], dict[str, Any]]:
        return ([indexes.writer.resource(number, next(_EDITIONS))],), {}

    report = benchmark.pedantic(built.engine.update, setup=another, rounds=5 if short else 15)
    assert (report.resources_changed, report.passages_embedded) == (1, 1)


def bench_unchanged(benchmark: Any, indexes: Indexes, units: int) -> None:
    """All resources given again, nothing to do but to see that."""
    built = indexes.index(units)
    report = benchmark.pedantic(built.engine.index, (built.memory.resources,), rounds=2)
    assert report.passages_embedded == 0
