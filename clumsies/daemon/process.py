"""The resident process: from an empty start to a served socket, and down again in order.

Up: private directories, lock, logs, socket, service, readiness. The socket listens before the
service is ready, so that a client that comes early waits instead of finding nobody. Down: no new
requests, those under way finish within a bound, the service closes, the socket file goes, and the
lock ends with the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from importlib import import_module

from clumsies.config import (
    DaemonPlaces,
    ServiceEnvironment,
    daemon_places,
    take_service_environment,
)
from clumsies.daemon import crash, sockets
from clumsies.daemon.commands import say
from clumsies.daemon.connections import SocketServer
from clumsies.daemon.context import ProcessContext, Service, ServiceFactory, Statistics
from clumsies.daemon.dispatcher import Dispatcher
from clumsies.daemon.lock import DaemonLock
from clumsies.daemon.notify import READY, STOPPING, Notifier, reloading
from clumsies.daemon.wire import PROTOCOL_REVISION
from clumsies.errors import EXIT_FAILURE, EXIT_OK, ClumsiesError
from clumsies.files import ensure_private_directory
from clumsies.logs import CRASH_LOG, DAEMON_LOG, EventLog, LogFile, adopt_library_logs
from clumsies.version import VERSION

SERVICE_MODULE = "clumsies.daemon.service"
GRACE_S = 10.0
"""How long requests under way may take to finish at the end."""
CLOSE_TIMEOUT_S = 10.0
"""How long the service may take to close; then the process ends all the same."""
_PRIVATE_UMASK = 0o077


def run(
    make_service: ServiceFactory | None = None,
    *,
    places: DaemonPlaces | None = None,
    environment: ServiceEnvironment | None = None,
    grace_s: float = GRACE_S,
) -> int:
    """Serve until SIGTERM or SIGINT; the exit status.

    `make_service` is by default `clumsies.daemon.service.make_service`. Raises ClumsiesError where
    the daemon cannot start; nothing is left behind then.
    """
    os.umask(_PRIVATE_UMASK)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # Until there is something to reload.
    chosen = places or daemon_places()
    handed = environment or take_service_environment()
    for directory in (chosen.root, chosen.logs):
        ensure_private_directory(directory)
    sockets.prepare_directory(chosen.socket.parent)
    lock = DaemonLock(chosen)
    lock.acquire()
    try:
        factory = make_service or _default_factory()
        return _Process(chosen, handed, factory, grace_s).run()
    finally:
        lock.release()


def _default_factory() -> ServiceFactory:
    factory: ServiceFactory = import_module(SERVICE_MODULE).make_service
    return factory


class _Process:
    """One life of the daemon, while the lock is held."""

    def __init__(
        self,
        places: DaemonPlaces,
        environment: ServiceEnvironment,
        factory: ServiceFactory,
        grace_s: float,
    ):
        self._places = places
        self._environment = environment
        self._factory = factory
        self._grace_s = grace_s
        self._notifier = Notifier(environment.notify_socket)
        self._log_file = LogFile(places.logs / DAEMON_LOG)
        self._log = EventLog(self._log_file)
        self._crashes = crash.CrashLog(LogFile(places.logs / CRASH_LOG))
        self._server: SocketServer | None = None

    def run(self) -> int:
        self._crashes.install()
        forget_libraries = adopt_library_logs(self._log)
        crash.mark_start(self._places.root, self._log, time.time())
        listener, bound = self._listen()
        self._log.emit(
            "daemon_started",
            version=VERSION,
            protocol_revision=PROTOCOL_REVISION,
            activated=bound is None,
        )
        try:
            finished = asyncio.run(self._serve(listener))
        except ClumsiesError as error:
            crash.mark_clean_end(self._places.root)  # Said in words; not a crash.
            self._log.failed("daemon_start_failed", error)
            raise
        finally:
            listener.close()
            if bound is not None:
                sockets.remove(self._places.socket, bound)
        crash.mark_clean_end(self._places.root)
        self._log.emit("daemon_stopped", clean=finished)
        forget_libraries()
        if finished:
            return EXIT_OK
        self._log_file.close()
        os._exit(EXIT_FAILURE)  # A handler does not return, and its thread would keep us here.

    def _listen(self) -> tuple[socket.socket, int | None]:
        """The socket, listening, and the inode of its file where it is ours to remove."""
        listener = sockets.activated(self._environment, self._places.socket)
        if listener is not None:
            return listener, None
        listener = sockets.bind(self._places.socket)
        listener.listen(128)
        return listener, self._places.socket.lstat().st_ino

    async def _serve(self, listener: socket.socket) -> bool:
        """Whether everything under way finished."""
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        hurry = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop_asked, number, stop, hurry)
        context = ProcessContext(self._places, self._log, self._statistics)
        # Opening the state may take its time, and signals have to be heard meanwhile.
        service = await loop.run_in_executor(None, self._factory, context)
        try:
            dispatcher = Dispatcher(service.handlers, self._log)
            self._server = server = SocketServer(dispatcher, self._log)
            reloads: set[asyncio.Task[None]] = set()
            loop.add_signal_handler(signal.SIGHUP, self._reload_asked, service, reloads)
            await server.start(listener)
            self._notifier.send(READY)
            await stop.wait()
            self._notifier.send(STOPPING)
            idle = await self._drain(server, hurry)
            dispatcher.close()
        finally:
            closed = await self._close(service)
        return idle and closed

    async def _drain(self, server: SocketServer, hurry: asyncio.Event) -> bool:
        """Stop the server; a second signal ends the grace."""
        stopping = asyncio.create_task(server.stop(self._grace_s))
        hurried = asyncio.create_task(hurry.wait())
        await asyncio.wait({stopping, hurried}, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        if stopping.done():
            return stopping.result()
        stopping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await stopping
        return await server.stop(0.0)

    async def _close(self, service: Service) -> bool:
        """Close the service on a thread that cannot keep the process; whether it came back."""
        loop = asyncio.get_running_loop()
        closed: asyncio.Future[None] = loop.create_future()

        def close() -> None:
            error: Exception | None = None
            try:
                service.close()
            except Exception as found:
                error = found
            with contextlib.suppress(RuntimeError):  # The loop gave up and is closed.
                loop.call_soon_threadsafe(_settle, closed, error)

        threading.Thread(target=close, name="clumsiesd-close", daemon=True).start()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await closed
        except TimeoutError as error:
            self._log.failed("service_close_failed", error)
            return False
        except Exception as error:
            self._log.failed("service_close_failed", error)
        return True

    def _statistics(self) -> Statistics:
        return self._server.statistics() if self._server else Statistics(0, 0, 0)

    def _stop_asked(self, number: int, stop: asyncio.Event, hurry: asyncio.Event) -> None:
        self._log.emit("daemon_stopping", signal=signal.Signals(number).name)
        if stop.is_set():
            hurry.set()
        stop.set()

    def _reload_asked(self, service: Service, reloads: set[asyncio.Task[None]]) -> None:
        task = asyncio.get_running_loop().create_task(self._reload(service))
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    async def _reload(self, service: Service) -> None:
        self._notifier.send(reloading())
        self._log_file.reopen()
        self._crashes.reopen()
        try:
            await asyncio.to_thread(service.reload)
        except Exception as error:
            self._log.failed("reload_failed", error)
        else:
            self._log.emit("daemon_reloaded")
        self._notifier.send(READY)


def _settle(future: asyncio.Future[None], error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


def run_command(run_daemon: Callable[[], int] = run) -> int:
    """`clumsiesd run`: the exit status, with a refusal to start said on stderr."""
    try:
        return run_daemon()
    except ClumsiesError as error:
        say(f"{error.message} ({error.code})")
        return error.exit_code
