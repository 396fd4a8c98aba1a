"""The import graph: floors, owners of third parties, and who may read the environment or print.

Read from the source, so that a module nobody imports yet is held to it too.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "clumsies"

FLOORS = {
    "errors": 0,
    "types": 0,
    "version": 0,
    "config": 1,
    "files": 1,
    "logs": 1,
    "_native": 1,
    "models": 2,
    "storage": 2,
    "engine": 3,
    "memory": 3,
    "history": 4,
    "kanban": 4,
    "api": 4,
    "sync": 5,
    "server": 5,
    "daemon client": 5,
    "daemon": 6,
    "agent": 7,
    "console": 7,
    "cli": 7,
}
"""Of every part of the package. A part may import from itself and from lower floors."""

DAEMON_CLIENT = ("daemon.wire", "daemon.messages", "daemon.contract", "daemon.client")
"""The half of `daemon` that small processes load: a part of its own."""

MAY_IMPORT = {"agent": {"daemon client"}, "console": {"daemon client", "daemon"}}
"""Parts that are kept to these above floor 1."""

OWNERS = {
    "apsw": ("clumsies.storage", "clumsies.engine"),
    "usearch": ("clumsies.engine.hnsw_graph",),
    "onnxruntime": ("clumsies.models",),
    "tokenizers": ("clumsies.models",),
    "httpx": ("clumsies.models.download", "clumsies.sync.remote", "clumsies.server.identity.oidc"),
    "keyring": ("clumsies.sync.credentials",),
    "secretstorage": ("clumsies.sync.credentials",),
    "litestar": ("clumsies.server.http",),
    "sqlalchemy": ("clumsies.server",),
    "uvicorn": ("clumsies.server.process",),
    "jwt": ("clumsies.server.identity.oidc",),
    "typer": ("clumsies.cli",),
    "click": ("clumsies.cli",),
    "rich": ("clumsies.cli",),
    "Stemmer": ("clumsies.engine.analysis",),
    "platformdirs": ("clumsies.config",),
    "pathspec": ("clumsies.memory",),
}
"""Third parties and the only modules, or packages, that may import them."""

TYPES = {"apsw": {"Connection"}}
"""Names of a third party that are handed on, so that others may write down the type."""

FACADES = {"clumsies", "clumsies.__main__"}
"""The public names and the entry point: they hand on what other parts make."""


class Import(NamedTuple):
    """`target` is a dotted name; `deferred` where it runs later than the module, or never."""

    module: str
    target: str
    line: int
    deferred: bool


def module_name(path: Path, root: Path = ROOT) -> str:
    name = ".".join(path.relative_to(root).with_suffix("").parts)
    return name.removesuffix(".__init__")


def sources(*folders: str) -> list[tuple[str, ast.Module]]:
    """(module, syntax tree) of every Python file in the folders."""
    return [
        (module_name(path), ast.parse(path.read_text("utf-8"), str(path)))
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*.py"))
    ]


PARSED = sources("clumsies")
MODULES = {module for module, _ in PARSED} | {module_name(path) for path in PACKAGE.rglob("*.pyx")}


def imports_of(module: str, tree: ast.Module) -> Iterator[Import]:
    at_once = set(map(id, _runs_at_import(tree)))
    for node in ast.walk(tree):
        deferred = id(node) not in at_once
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module, alias.name, node.lineno, deferred)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno} imports relatively"
            assert node.module is not None
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                target = whole if whole in MODULES else node.module
                yield Import(module, target, node.lineno, deferred)


def _runs_at_import(tree: ast.AST) -> Iterator[ast.AST]:
    """Nodes outside functions and outside `if TYPE_CHECKING`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        yield from _runs_at_import(node)


def part_of(module: str) -> str:
    """`engine` for clumsies.engine.units."""
    inner = module.removeprefix("clumsies.")
    if inner.startswith(DAEMON_CLIENT):
        return "daemon client"
    return inner.split(".")[0]


IMPORTS = [found for module, tree in PARSED for found in imports_of(module, tree)]
INNER = [
    found
    for found in IMPORTS
    if found.module not in FACADES and found.target.startswith("clumsies.")
]


def test_every_module_has_a_floor() -> None:
    assert {part_of(module) for module in MODULES - FACADES} <= FLOORS.keys()


def test_imports_go_down_or_stay_inside() -> None:
    wrong = [
        f"{found.module}:{found.line} imports {found.target}"
        for found in INNER
        if part_of(found.module) != part_of(found.target)
        and FLOORS[part_of(found.module)] <= FLOORS[part_of(found.target)]
    ]
    assert wrong == []


def test_some_parts_know_the_daemon_alone() -> None:
    wrong = [
        f"{found.module}:{found.line} imports {found.target}"
        for found in INNER
        for part in [part_of(found.module)]
        if part in MAY_IMPORT
        and part_of(found.target) not in MAY_IMPORT[part] | {part}
        and FLOORS[part_of(found.target)] > 1
    ]
    assert wrong == []


def test_the_import_graph_has_no_circle() -> None:
    graph: dict[str, set[str]] = {module: set() for module in MODULES}
    for found in INNER:
        if not found.deferred and found.target != found.module:
            graph[found.module].add(found.target)
    assert len(list(TopologicalSorter(graph).static_order())) == len(MODULES)


@pytest.mark.parametrize("third_party", OWNERS)
def test_a_third_party_has_one_owner(third_party: str) -> None:
    owners = OWNERS[third_party]
    wrong = [
        f"{found.module}:{found.line}"
        for found in IMPORTS
        if found.target.split(".")[0] == third_party
        and _uses(found.module, third_party) - TYPES.get(third_party, set())
        and not any(found.module == o or found.module.startswith(f"{o}.") for o in owners)
    ]
    assert wrong == []


def _uses(module: str, third_party: str) -> set[str]:
    """Attributes of the third party that the module names; the empty one for `from … import`."""
    (tree,) = (parsed for name, parsed in PARSED if name == module)
    attributes = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == third_party
    }
    plain = all(
        node.names[0].name == third_party
        for node in ast.walk(tree)
        if isinstance(node, ast.Import) and node.names[0].name.split(".")[0] == third_party
    )
    taken = any(
        isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == third_party
        for node in ast.walk(tree)
    )
    return attributes | ({""} if taken or not plain or not attributes else set())


def test_every_third_party_is_known() -> None:
    known = {*OWNERS, "clumsies", "numpy", "msgspec", *sys.stdlib_module_names}
    assert {found.target.split(".")[0] for found in IMPORTS} - known == set()


def test_only_config_reads_the_environment() -> None:
    names = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}
    wrong = [
        f"{module}:{node.lineno}"
        for module, tree in PARSED
        if module != "clumsies.config"
        for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and node.attr in names and _is_os(node.value))
        or (isinstance(node, ast.ImportFrom) and node.module == "os" and _imports(node, names))
    ]
    assert wrong == []


def _is_os(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "os"


def _imports(node: ast.ImportFrom, names: set[str]) -> bool:
    return any(alias.name in names for alias in node.names)


def test_only_commands_print() -> None:
    wrong = [
        f"{module}:{node.lineno}"
        for module, tree in PARSED
        if not module.startswith("clumsies.cli")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"print", "breakpoint", "input"}
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("folder", "more"),
    [
        ("evaluation", {"storage", "history"}),
        ("benchmarks", {"storage", "cli", "history", "daemon client", "api", "server"}),
    ],
)
def test_tools_use_what_the_engine_is_made_of(folder: str, more: set[str]) -> None:
    """Benchmarks also take the sample memory that the command line ships, and the client that
    measures a daemon from outside, by its socket, and what fills a Server's database before it
    is loaded; never the daemon's own modules."""
    allowed = more | {"engine", "models", "_native"} | {p for p, f in FLOORS.items() if f < 2}
    found = [
        item
        for module, tree in sources(folder)
        for item in imports_of(module, tree)
        if item.target.startswith("clumsies.")
    ]
    assert found, f"{folder} does not import the package"
    wrong = [
        f"{item.module}:{item.line} imports {item.target}"
        for item in found
        if part_of(item.target) not in allowed
    ]
    assert wrong == []


def test_the_package_imports_neither_its_tests_nor_its_tools() -> None:
    outside = {"tests", "evaluation", "benchmarks"}
    wrong = [
        f"{found.module}:{found.line}" for found in IMPORTS if found.target.split(".")[0] in outside
    ]
    assert wrong == []
