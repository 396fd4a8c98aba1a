"""Any series of publications leaves what a dictionary would hold, and genuine commits of it."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from clumsies.errors import Conflict
from clumsies.server.acting import Acting
from clumsies.server.database import Database, sqlite_url
from clumsies.server.memory.publication import ResourceChange, publish_org
from clumsies.server.memory.selection_rows import SelectionChange
from clumsies.server.migrations import migrate
from clumsies.server.schema import commits
from clumsies.storage.tree_paths import find_collision
from tests.server.memories import check_everything, paths, ref_at
from tests.server.world import World, make_world

NAMES = [f"mem_{letter}" for letter in "abcd"]
PATHS = ["a.md", "A.md", "b.md", "b.md/c.md", "d.md"]
TEXTS = ["one", "# two", "three\x00"]
change = st.one_of(
    st.builds(
        ResourceChange,
        st.sampled_from(NAMES),
        st.sampled_from(PATHS),
        st.sampled_from(TEXTS),
        st.sampled_from([None, "", "said"]),
    ),
    st.builds(ResourceChange, st.sampled_from(NAMES), is_deleted=st.just(True)),
)
step = st.tuples(
    st.lists(change, max_size=4),
    st.sampled_from([None, "alpha", "beta"]),
    st.frozensets(st.sampled_from(NAMES), max_size=2),
)


def acting_in(world: World) -> Acting:
    ticks = count(1_780_000_000_000_000_000, 1_000)
    names = count()
    return Acting(
        world.database,
        world.principal("owner"),
        lambda: next(ticks),
        lambda prefix: f"{prefix}_{next(names)}",
        "req_1",
    )


Held = dict[str, tuple[str, str]]


def applied(held: Held, changes: list[ResourceChange]) -> Held:
    after = dict(held)
    for one in changes:
        if one.is_deleted:
            after.pop(one.resource_id, None)
        else:
            after[one.resource_id] = (one.path or "", one.content or "")
    return after


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a migrated database with the world in it."""
    path = tmp_path_factory.mktemp("template") / "server.db"
    database = Database(sqlite_url(path))
    migrate(database)
    make_world(database)
    database.close()
    return path


@given(steps=st.lists(step, min_size=1, max_size=5))
@settings(max_examples=settings().max_examples // 2)
def test_publications_follow_a_model(template: Path, steps) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "server.db"
        shutil.copyfile(template, path)
        database = Database(sqlite_url(path))
        world = World(database)
        acting = acting_in(world)
        held: Held = {}
        chosen: dict[str, set[str]] = {"alpha": set(), "beta": set()}
        for changes, project, dropped in steps:
            after = applied(held, changes)
            created = after.keys() - held.keys()
            selection = None
            if project is not None:
                gone = frozenset(dropped - created)
                selection = SelectionChange(world.projects[project], removed=gone)
            carrying = world.projects[project] if project else None
            try:
                acting.write(
                    lambda act, c=changes, p=carrying, s=selection: publish_org(act, c, p, s)
                )
            except Conflict:
                assert find_collision(path for path, _ in after.values()) is not None
            else:
                assert find_collision(path for path, _ in after.values()) is None
                for names in chosen.values():
                    names.intersection_update(after)
                if project is not None:
                    chosen[project] = (chosen[project] | created) - (dropped - created)
                held = after
            org = ref_at(database, f"org:{world.orgs['acme']}")
            assert paths(database, org.commit_id) == dict(held.values())
            for name, names in chosen.items():
                ref = ref_at(database, f"project:{world.projects[name]}")
                assert paths(database, ref.commit_id) == dict(held[one] for one in names)
            check_everything(database)
        with database.read() as connection:
            rows = connection.execute(select(commits.c.scope, commits.c.project_id))
            made = Counter(tuple(row) for row in rows)
        assert made[("org", None)] <= len(steps)
        database.close()
