"""What the documentation promises is what the code has."""

from __future__ import annotations

import re
from pathlib import Path

from clumsies.cli.app import COMMANDS, GROUPS
from clumsies.errors import from_code, known_codes

DOCS = Path(__file__).resolve().parents[1] / "docs"


def test_every_error_code_has_its_row_and_exit_code() -> None:
    rows = re.findall(
        r"^\| `([a-z_]+)` \| (\d) \| \S", (DOCS / "errors.md").read_text("utf-8"), re.M
    )
    assert sorted(code for code, _ in rows) == sorted(known_codes())
    for code, exit_code in rows:
        assert from_code(code, "").exit_code == int(exit_code), code


def test_every_command_is_described() -> None:
    text = "".join(path.read_text("utf-8") for path in DOCS.glob("*.md"))
    for name in (*COMMANDS, *GROUPS):
        assert re.search(rf"(clumsies |`|: |, ){name}\b", text), name


def test_links_between_documents_lead_somewhere() -> None:
    for path in (*DOCS.glob("*.md"), *DOCS.parent.glob("*.md")):
        text = re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.M | re.S)
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            assert (path.parent / link).exists(), (path.name, link)
