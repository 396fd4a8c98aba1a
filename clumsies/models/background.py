"""Preparation beside the work of a resident process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from clumsies.errors import ClumsiesError
from clumsies.models.preparation import ModelStore

log = logging.getLogger(__name__)


class BackgroundPreparation:
    """One thread that prepares a store until it is ready or told to stop.

    How far it is can be asked of `store.status()`. `on_ready` is called once, from that thread,
    when every file is verified, at once where they were there already.
    """

    def __init__(self, store: ModelStore, on_ready: Callable[[], None]):
        self._store = store
        self._on_ready = on_ready
        self._cancel = threading.Event()
        self._thread = threading.Thread(target=self._run, name="model-preparation", daemon=True)

    def start(self) -> None:
        """Begin; once per object."""
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Ask the thread to end and wait for it; True once it has. What was fetched stays."""
        self._cancel.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            reached = self._store.prepare(cancel=self._cancel)
        except ClumsiesError as error:  # Nothing that trying again mends, such as a bad setting.
            log.error("models of %s: %s", self._store.profile.name, error.message)
            return
        if reached.state == "ready":
            self._on_ready()
