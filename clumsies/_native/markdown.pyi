"""Types of the Markdown block scanner; the semantics stand in the kernel's own docstrings."""

from typing import Final, NamedTuple

KERNEL_VERSION: Final[int]

HEADING: Final[int]
PARAGRAPH: Final[int]
CODE: Final[int]
FENCE: Final[int]
HTML: Final[int]
QUOTE: Final[int]
LIST: Final[int]
LIST_ITEM: Final[int]
TABLE: Final[int]
BREAK: Final[int]
REFERENCE: Final[int]
FRONT_MATTER: Final[int]

MAX_CONTAINER_DEPTH: Final[int]

class Blocks(NamedTuple):
    content_start: int
    headings: list[tuple[int, int, int, int, int, int]]
    blocks: list[tuple[int, int, int, int]]

def scan(body: bytes) -> Blocks: ...
