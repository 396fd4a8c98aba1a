"""Profiles of a few kilobytes, made of bytes that the tests generate."""

from __future__ import annotations

import hashlib
import random
from dataclasses import replace

from clumsies.models.manifest import COMPACT, Artifact, ModelFile, Profile, Role

REVISION = "0123456789abcdef"
Contents = dict[Role, dict[str, bytes]]


def contents(seed: int = 1, size: int = 50_000) -> Contents:
    """Bytes for an embedder with a nested model file and a reranker."""
    source = random.Random(seed)
    return {
        "embedder": {
            "onnx/model.onnx": source.randbytes(size),
            "tokenizer.json": source.randbytes(3_000),
        },
        "reranker": {"model.onnx": source.randbytes(7_000)},
    }


def profile_of(bodies: Contents, *, name: str = "tiny", packaged: bool = False) -> Profile:
    """The profile that pins exactly those bytes."""
    artifacts = tuple(_artifact(role, files) for role, files in bodies.items())
    return replace(COMPACT, name=name, artifacts=artifacts, packaged=packaged)


def _artifact(role: Role, files: dict[str, bytes]) -> Artifact:
    pinned = tuple(
        ModelFile(path, len(body), hashlib.sha256(body).hexdigest()) for path, body in files.items()
    )
    return Artifact(role, f"someone/tiny-{role}", REVISION, pinned, "MIT")


def url_path(role: Role, path: str) -> str:
    """Where a hub serves that file."""
    return f"/someone/tiny-{role}/resolve/{REVISION}/{path}"
