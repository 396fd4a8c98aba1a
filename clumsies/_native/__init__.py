"""Compiled kernels of the hot path: Markdown block scan, search terms, rank fusion.

Each kernel module has a `KERNEL_VERSION`; a build left over from other sources fails here, at
import, instead of giving answers of an older rule.
"""

from __future__ import annotations

from clumsies._native import fusion, markdown, terms

EXPECTED_VERSIONS = {"markdown": 1, "terms": 1, "fusion": 1}


def _check(name: str, found: int) -> None:
    if found != EXPECTED_VERSIONS[name]:
        raise ImportError(
            f"clumsies._native.{name} was built from other sources (kernel version {found}, "
            f"expected {EXPECTED_VERSIONS[name]}); reinstall the package"
        )


_check("markdown", markdown.KERNEL_VERSION)
_check("terms", terms.KERNEL_VERSION)
_check("fusion", fusion.KERNEL_VERSION)

__all__ = ["fusion", "markdown", "terms"]
