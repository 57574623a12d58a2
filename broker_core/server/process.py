# SPDX-License-Identifier: Apache-2.0
"""One broker as one operating system process: event loop, signals, runtime file, idle stop, and how it ends.

Ends:
- SIGTERM or SIGINT: graceful stop, ``serve`` returns (exit code 0).
- A second SIGTERM or SIGINT: at once, killed by the signal. Nothing confirmed is lost, as after any kill.
- SIGHUP ends a broker without TLS as any process; one with TLS reads its certificate again and goes on.
- No connection for ``idleStopSeconds``: as SIGTERM.
- The disk refused a write or sync, or the data directory or a log in it was taken away: message on stderr, exit code
  ``EXIT_DISK_FAILED`` at once. The next start recovers.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from broker_core import __version__
from broker_core.base.allocator import keep_some
from broker_core.base.errors import ConfigError, StorageError
from broker_core.base.local_access import announce, make_token, withdraw
from broker_core.base.private_files import OTHERS, make_directory, open_to_others, other_owner, private_opener
from broker_core.base.runtime import RUNTIME_FILE, RuntimeInfo
from broker_core.base.settings import Settings
from broker_core.server.broker_server import BrokerServer
from broker_core.server.log import Log
from broker_core.server.security.reach import is_open
from broker_core.server.security.tls_connection import HANDSHAKES_MAX
from broker_core.storage import layout
from broker_core.storage.handles import HANDLES_MAX

logger = logging.getLogger(__name__)

EXIT_FAILURE: Final = 1
"""The broker could not start: data directory locked or damaged, port taken."""

EXIT_USAGE: Final = 2
"""A setting or the host is not allowed."""

EXIT_DISK_FAILED: Final = 8
"""The disk refused a write or sync, and the process stopped rather than confirm what may be lost."""

_CHECK_S: Final = 5.0
"""How often it is checked whether the data directory is still there and whether anybody is connected."""

_STDIN_BYTES: Final = 4096

_OTHER_FILES: Final = 512 + 2 * HANDSHAKES_MAX
"""Descriptors for what is neither a log file nor a connection of a client: the catalogue, HTTP clients, handshakes of
both ports with TLS, a reserve."""

_GC_YOUNG_OBJECTS: Final = 2_500
"""Allocations between two looks of the garbage collector. A look at twice as many took up to 17 ms, and one at four
times as many up to 24, where they were garbage: topics that were loaded only to be deleted."""

_GROWTH_BYTES: Final = 24 * 1024 * 1024
"""So much more than at the least is worth asking."""

_IN_VAIN_BYTES: Final = 8 * 1024 * 1024
_PAUSE_MAX: Final = 8
"""If less than that came of it memory is in use: asked for again after twice as many looks, up to this many."""

_STATM: Final = "/proc/self/statm"


def serve(
    settings: Settings,
    *,
    data_dir: Path,
    port: int,
    http_port: int,
    on_ready: Callable[[RuntimeInfo], None],
    stops_with_stdin: bool = False,
) -> None:
    """Serve until a signal or the idle stop. ``on_ready`` is called once, when both ports accept connections.

    ``stops_with_stdin``: or until standard input ends, as a pipe does when the process at its other end is gone.

    The logging of this process is the broker's from here on.

    Raises ConfigError, DataDirLockedError or another StorageError, or OSError for a port that cannot be had.
    """
    data_dir = data_dir.absolute()
    os.umask(OTHERS)  # what a library makes, too, is for its owner alone
    try:
        make_directory(str(data_dir.parent))
    except OSError as error:
        raise StorageError(
            f"the data directory {data_dir} cannot be made: {error.filename}: {error.strerror}",
            hint="choose another directory",
        ) from error
    if owner := other_owner(data_dir):
        raise StorageError(
            f"the data directory {data_dir} belongs to user {owner}, who could read and change all that is in it",
            hint="choose another directory, start the broker as that user, or have root chown it to this one",
        )
    log = Log()
    log.begin(settings.log_level, settings.log_format, settings.log_file)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(settings, data_dir, port, http_port, on_ready, log, stops_with_stdin=stops_with_stdin))
    log.tell_repeats(at_end=True)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where there is one; all works without it."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def _serve(
    settings: Settings,
    data_dir: Path,
    port: int,
    http_port: int,
    on_ready: Callable[[RuntimeInfo], None],
    log: Log,
    *,
    stops_with_stdin: bool,
) -> None:
    stop = asyncio.get_running_loop().create_future()
    _handle_signals(stop)
    if stops_with_stdin:
        _watch_stdin(stop)
    _raise_file_limit(settings.max_connections)
    owners_token = None if is_open(settings) else partial(make_token, data_dir)
    server = BrokerServer(settings, data_dir, on_disk_failure=_die, owners_token=owners_token)
    await server.start(port, http_port)
    node = server.node
    info = RuntimeInfo(
        pid=os.getpid(),
        service_url=node.service_url or node.service_url_tls,
        http_url=node.http_url or node.http_url_tls,
        version=__version__,
        service_url_tls=node.service_url_tls,
        http_url_tls=node.http_url_tls,
    )
    if server.tls is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, server.tls.reload)
    _tell_what_others_may_read(data_dir)
    runtime_file = data_dir / RUNTIME_FILE
    _write_runtime_file(runtime_file, info)
    _note_for_programs(data_dir, info)
    _tune_garbage_collector()
    keep_some()
    try:
        on_ready(info)
        logger.info(
            "broker started version=%s pid=%d data=%s service=%s http=%s durability=%s",
            *(__version__, info.pid, data_dir, info.service_url, info.http_url, settings.durability),
        )
        reason = await _until_time_to_stop(server, settings.idle_stop_seconds, data_dir, stop, log)
        logger.info("broker stops reason=%s connections=%d", reason, server.connections_open)
    finally:
        withdraw(data_dir, info.urls, os.environ)
        _remove_runtime_file(runtime_file)
        await server.stop()
    logger.info("broker stopped pid=%d", info.pid)


def _handle_signals(stop: asyncio.Future[str]) -> None:
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGINT)

    def on_signal() -> None:
        _stop_for("a signal", stop)
        for number in numbers:
            # The next one must work even if the stop hangs, so it is left to the operating system.
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    for number in numbers:
        loop.add_signal_handler(number, on_signal)


def _watch_stdin(stop: asyncio.Future[str]) -> None:
    loop, stdin = asyncio.get_running_loop(), sys.stdin.fileno()

    def on_readable() -> None:
        if not os.read(stdin, _STDIN_BYTES):
            loop.remove_reader(stdin)
            _stop_for("standard input ended", stop)

    loop.add_reader(stdin, on_readable)


def _stop_for(reason: str, stop: asyncio.Future[str]) -> None:
    if not stop.done():
        stop.set_result(reason)


async def _until_time_to_stop(
    server: BrokerServer, idle_stop_seconds: int, data_dir: Path, stop: asyncio.Future[str], log: Log
) -> str:
    """Return why: what ``stop`` says, or nobody was connected for ``idle_stop_seconds`` (0: never) at a stretch."""
    clock = asyncio.get_running_loop().time
    lock_path = Path(layout.lock_path(str(data_dir)))
    lock_number = _file_number(lock_path)
    idle_since, made = clock(), server.connections_made
    trimmer = Trimmer()
    while not stop.done():
        await asyncio.wait([stop], timeout=min(_CHECK_S, idle_stop_seconds or _CHECK_S))
        log.tell_repeats()
        await trimmer.look(at_ease=server.at_ease, alone=not server.connections_open)
        if _file_number(lock_path) != lock_number:
            _die(StorageError(f"{data_dir} was removed or replaced under the broker, which cannot keep anything now"))
        if server.connections_open or server.connections_made != made:
            idle_since, made = clock(), server.connections_made
        elif idle_stop_seconds and clock() - idle_since >= idle_stop_seconds:
            return f"nobody was connected for {idle_stop_seconds} s"
    return stop.result()


def _file_number(path: Path) -> int:
    """Number that tells a file from another one of the same name; 0 if there is none."""
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def _raise_file_limit(max_connections: int) -> None:
    """Have as many descriptors as connections and files may take, as far as this user may: by default many systems give
    1024 of what is allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max_connections + HANDLES_MAX + _OTHER_FILES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):  # macOS allows less than it says
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _tune_garbage_collector() -> None:
    """Entries in flight are many young objects and none of them garbage; by default a sixth of the time per entry goes
    into looking at them again and again. Cycles are rare here, so look rarely, and never at what was there at start.
    What outlives a look is looked at once more, when there is twice as much, and then only with everything else, very
    seldom."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_YOUNG_OBJECTS, 1, 7000)


def _tell_what_others_may_read(data_dir: Path) -> None:
    """Files that the broker makes are for its user alone; those it finds were perhaps made for others on purpose."""
    if found := open_to_others(str(data_dir)):
        advice = f"chmod -R go= {data_dir}"
        logger.warning("others than the owner may use the data paths=%s advice=%s", ", ".join(found), advice)


def _write_runtime_file(path: Path, info: RuntimeInfo) -> None:
    """All at once, and with the number that the file keeps when it gets its name."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    with open(fresh, "xb", opener=private_opener) as file:
        file.write(msgspec.structs.replace(info, file_number=os.fstat(file.fileno()).st_ino).encode())
    fresh.replace(path)


def _note_for_programs(data_dir: Path, info: RuntimeInfo) -> None:
    """Leave the note by which programs of this user, which know an address alone, find the token."""
    try:
        announce(data_dir, info.urls, os.environ)
    except (ConfigError, OSError) as error:
        logger.warning("the token is found by the data directory alone data=%s reason=%s", data_dir, error)


def _remove_runtime_file(path: Path) -> None:
    """Unless it is another broker's by now."""
    with contextlib.suppress(OSError):
        with open(path, "rb", opener=private_opener) as file:
            info = RuntimeInfo.read(file)
        if info is not None and info.pid == os.getpid():
            path.unlink()


def _die(error: StorageError) -> NoReturn:
    """Stop on the spot. No clean-up: nothing may be written to a disk in an unknown state."""
    with contextlib.suppress(OSError):  # stderr may be a file on the very disk that failed
        logger.critical("broker stops at once reason=%s", error)
    os._exit(EXIT_DISK_FAILED)


class Trimmer:
    """Gives memory that the process no longer uses back to the system, where the allocator can be asked to.

    The allocator keeps what was freed, for a reader of large entries takes and leaves the same few MiB over and over
    (``base.allocator``). After a flood that may be much more, and it lies between what is in use; so now and then, when
    the broker is at ease, the allocator lets go of all of it. Topics and what belongs to them refer to each other, so
    Python frees those that were unloaded only when it looks for cycles (connections leave none). Among a million
    objects that takes the loop a tenth of a second and more; therefore it is done when no client is connected.
    """

    def __init__(self) -> None:
        self._trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
        self._least_bytes = resident_bytes()
        self._pause = 1
        self._looks = 0

    async def look(self, *, at_ease: bool, alone: bool) -> None:
        """If memory has grown and the broker is ``at_ease``: trim, on another thread, for it may take milliseconds.
        ``alone``: no client is connected, so that none waits while cycles are looked for."""
        before = resident_bytes()
        self._least_bytes = min(before, self._least_bytes)
        self._looks += 1
        if self._trim is None or not at_ease or before - self._least_bytes <= _GROWTH_BYTES:
            return
        if self._looks >= self._pause:
            if alone:
                gc.collect()
            await asyncio.to_thread(self._trim, 0)
            self._looks = 0
            self._pause = 1 if before - resident_bytes() >= _IN_VAIN_BYTES else min(2 * self._pause, _PAUSE_MAX)


def resident_bytes() -> int:
    """Memory of this process that is in use, 0 where the system does not say it this way."""
    try:
        with open(_STATM, "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
