"""One agent process of many: `python -m tests.daemon.mixed_calls SOCKET PROJECT NAME CALLS`.

Activates, loads, stores and lists in turn. Prints one JSON object: marks that were acknowledged,
conflicts met, and every error that is no honest conflict.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from clumsies.daemon.client import DaemonClient
from clumsies.errors import ClumsiesError
from tests.daemon.resident import Project

SHARED = "shared.md"
END = "End of the notes."
HONEST = frozenset({"memory_content_changed"})


def main() -> None:
    place, project_id, name, calls = sys.argv[1:5]
    dice = random.Random(name)
    own: list[str] = []
    shared: list[str] = []
    conflicts = 0
    errors: list[str] = []
    with DaemonClient(Path(place), name) as client:
        project = Project(client, project_id)
        for number in range(int(calls)):
            mark = f"mark-{name}-{number}"
            try:
                match dice.randrange(6):
                    case 0:
                        project.activate("what do the notes say about herons?")
                    case 1:
                        project.load(SHARED)
                    case 2:
                        project.call("list_drafts", limit=10)
                    case 3 | 4:
                        project.create(f"{name}/{number}.md", f"# {mark}\n\nA heron.\n")
                        own.append(f"{name}/{number}.md")
                    case _:
                        [loaded] = project.load(SHARED)
                        project.replace(loaded, (END, f"- {mark}\n{END}"))
                        shared.append(mark)
            except ClumsiesError as error:
                if error.code in HONEST:
                    conflicts += 1
                else:
                    errors.append(f"{error.code}: {error.message}")
    found = {"own": own, "shared": shared, "conflicts": conflicts, "errors": errors}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
