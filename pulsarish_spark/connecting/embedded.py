# SPDX-License-Identifier: Apache-2.0
"""The embedded broker: found or started for a data directory, a process that outlives the one that starts it.

Theory of operation. A process that starts a broker holds the lock of ``embedded.lock`` meanwhile, so two starters on
one directory end with one broker (the broker's own lock on its data would refuse the second anyway).
``broker.json`` is only a hint: a broker is alive if the file was not copied from elsewhere, its process exists, its
directory is locked, and its port accepts. The ports of the last start are kept in ``embedded.json`` and asked for
again, so that clients of a broker that was killed find its successor at the same address. It stops by itself when no
client has been connected for ``IDLE_STOP_S``.

The folder of ``local()`` lasts as long as its block and its broker; one that a killed process left behind is swept
later. Its file ``embedded.owner`` is locked from before it has that name. The broker inherits the open file, so the
system lets the lock go when owner and broker have both ended, in whatever way. A process that gets the lock may
therefore delete the folder; a folder without such a file, or of another user, was not made here and is left alone.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from broker_core.base.clock import SystemClock
from broker_core.base.errors import ConfigError, OperationTimeoutError, PulsarishError
from broker_core.base.private_files import make_directory, other_owner, private_opener, replace_private
from broker_core.base.runtime import (
    DATA_LOCK_FILE,
    EMBEDDED_LOG_FILE,
    RUNTIME_FILE,
    RuntimeInfo,
    checked_data_dir,
    first_foreign,
    has_directory,
    is_held,
)

IDLE_STOP_S: Final = 300
LOCK_FILE: Final = "embedded.lock"
_OWNER_FILE: Final = "embedded.owner"
_PASSING: Final = "pulsarish-"
"""The beginning of the names of folders of ``local()``."""
PORTS_FILE: Final = "embedded.json"
LOCAL_IDLE_STOP_S: Final = 3600
"""Idle seconds after which a broker of ``local()`` stops, should a fork of its owner outlive the owner: longer than a
user of a notebook pauses to think."""

START_TIMEOUT_S: Final = 60.0
_STOP_TIMEOUT_S: Final = 20.0
_CONNECT_TIMEOUT_S: Final = 1.0
_POLL_S: Final = 0.02
_PID_BYTES_MAX: Final = 32
_GUARD_INTERVAL_S: Final = 0.5
_LOG_TAIL_BYTES: Final = 600

_clock = SystemClock()
_children: list[subprocess.Popen[bytes]] = []


@atexit.register
def _let_live() -> None:
    """The brokers started here outlive this process on purpose; Popen would warn of every one."""
    for child in _children:
        child.returncode = child.poll() or 0


class EmbeddedBrokerError(PulsarishError):
    """The embedded broker could not be started."""


class Ports(NamedTuple):
    """Ports to ask for; 0 is any."""

    service: int = 0
    http: int = 0


def find(data_dir: Path) -> RuntimeInfo | None:
    """The broker that serves ``data_dir`` now, if there is one."""
    try:
        with open(data_dir / RUNTIME_FILE, "rb", opener=private_opener) as file:
            info = RuntimeInfo.read(file)
    except FileNotFoundError:
        return None
    # After a restart of the machine or container another process may have that number, and another broker that port.
    if info is None or not _is_alive(info.pid) or not has_directory(info, data_dir) or not _accepts(info.service_url):
        return None
    return info


def ensure(data_dir: Path) -> RuntimeInfo:
    """Find or start the broker of ``data_dir``; returns when it accepts connections.

    Raises EmbeddedBrokerError if it cannot start or the directory holds other data, OperationTimeoutError if it is
    not ready in ``START_TIMEOUT_S``.
    """
    with _usable(data_dir):
        if (info := find(data_dir)) is not None:
            return info
        _prepare(data_dir)
        with _only_starter(data_dir):
            _await_predecessor(data_dir)
            return find(data_dir) or _start(data_dir)


def named_directory(data_dir: str | os.PathLike[str]) -> Path:
    """The absolute path of a directory that the user named; ConfigError if the name is empty, or a URL."""
    if not os.fspath(data_dir):
        raise ConfigError("the data directory is an empty text", hint="name one, or leave it out for the default")
    return Path(os.path.expanduser(checked_data_dir(os.fspath(data_dir)))).absolute()


@contextlib.contextmanager
def _usable(data_dir: Path) -> Iterator[None]:
    """An OSError about ``data_dir`` becomes an EmbeddedBrokerError, as the error of a directory of another user."""
    if owner := other_owner(data_dir):
        raise EmbeddedBrokerError(
            f"{data_dir} belongs to user {owner}, whose broker would be sent everything",
            hint="name another directory; or, to use that user's broker, its address (service.url) and a token of it",
        )
    try:
        yield
    except OSError as error:
        raise EmbeddedBrokerError(
            f"{data_dir} cannot be the data directory of the embedded broker: {error.strerror or error}",
            hint='name another: .option("data.dir", "/var/lib/pulsarish")',
        ) from error


class LocalBroker(NamedTuple):
    """A broker made by ``local()`` or ``notebook_broker()``."""

    service_url: str
    http_url: str
    data_dir: Path
    pid: int


@contextlib.contextmanager
def local(data_dir: str | os.PathLike[str] | None = None) -> Iterator[LocalBroker]:
    """Run a broker of its own on free ports for the length of the block, for tests and notebooks.

    It is stopped at the end, and its data is deleted unless it lies in a ``data_dir`` that was named. If this process
    is killed, the broker stops by itself, and the next call deletes the data. Raises EmbeddedBrokerError if it cannot
    start, as where another broker serves ``data_dir``.
    """
    with contextlib.ExitStack() as stack:
        if data_dir is None:
            directory, lock = stack.enter_context(_passing_folder())
        else:
            directory, lock = named_directory(data_dir), None
        with _usable(directory):
            _prepare(directory)
            process = _launch(
                directory,
                Ports(),
                idle_stop_s=LOCAL_IDLE_STOP_S,
                kept_open=() if lock is None else (lock,),
                ends_with_us=True,
            )
        stack.callback(_end, process)
        info = _await_ready(directory, process, only=process.pid)
        yield LocalBroker(info.service_url, info.http_url, directory, process.pid)


def notebook_broker() -> LocalBroker:
    """As ``local``, until this Python ends: for a notebook, as no block spans its cells, and for a short program.

    Raises as ``local`` does.
    """
    running = contextlib.ExitStack()
    broker = running.enter_context(local())
    atexit.register(running.close)
    return broker


@contextlib.contextmanager
def guarded(data_dir: Path) -> Iterator[None]:
    """Start the embedded broker again whenever it is found dead, for the length of the block.

    Those who use an embedded broker work in one, so a kill costs them a pause instead of a failure.
    """
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_GUARD_INTERVAL_S):
            with contextlib.suppress(PulsarishError, OSError):  # the user's own call reports what is wrong
                ensure(data_dir)

    threading.Thread(target=watch, name="pulsarish-embedded-guard", daemon=True).start()
    try:
        yield
    finally:
        over.set()


# -- processes and files


def _prepare(data_dir: Path) -> None:
    """Make the directory if there is none. EmbeddedBrokerError, with nothing written, if it holds other data."""
    make_directory(str(data_dir))
    names = os.listdir(data_dir)
    # If one of them is damaged, or gone, the broker says how to mend that.
    has_been_ours = "FORMAT" in names or "catalogue.copy" in names
    if not has_been_ours and (foreign := first_foreign(names)):
        raise EmbeddedBrokerError(
            f"{data_dir} is no data directory of a broker: it has {foreign} but no FORMAT file",
            hint='name an empty or new directory: .option("data.dir", "/var/lib/pulsarish")',
        )


@contextlib.contextmanager
def _only_starter(data_dir: Path) -> Iterator[None]:
    """Wait until no other process is starting a broker of ``data_dir``. The lock ends with its process."""
    with open(data_dir / LOCK_FILE, "ab", opener=private_opener) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            # Before the file is closed: a fork of another thread may have it open too, and with it the lock.
            fcntl.flock(lock, fcntl.LOCK_UN)


def _await_predecessor(data_dir: Path) -> None:
    """Wait, though not for ever, while a broker has the directory that cannot be found: it is stopping, or starting."""
    deadline = _clock.monotonic() + _STOP_TIMEOUT_S
    with (
        contextlib.suppress(FileNotFoundError),
        open(data_dir / DATA_LOCK_FILE, "rb", opener=private_opener) as lock,
    ):
        owner = lock.read(_PID_BYTES_MAX).strip()
        # Only a living owner's lock is tried: trying takes it for a moment, in which another starter would not get it.
        if not owner.isdigit() or not _is_alive(int(owner)):
            return
        while find(data_dir) is None and is_held(lock) and _clock.monotonic() < deadline:
            _clock.sleep(_POLL_S)


def _start(data_dir: Path) -> RuntimeInfo:
    ports = _last_ports(data_dir)
    try:
        info = _started(data_dir, ports)
    except EmbeddedBrokerError:
        if ports == Ports():
            raise
        info = _started(data_dir, Ports())  # another process has one of the ports now
    _keep_ports(data_dir, info)
    return info


def _started(data_dir: Path, ports: Ports) -> RuntimeInfo:
    process = _launch(data_dir, ports, idle_stop_s=IDLE_STOP_S)
    _children[:] = [child for child in _children if child.poll() is None]  # leave no zombies behind
    _children.append(process)
    return _await_ready(data_dir, process)


def _launch(
    data_dir: Path, ports: Ports, *, idle_stop_s: int, kept_open: tuple[int, ...] = (), ends_with_us: bool = False
) -> subprocess.Popen[bytes]:
    """Start a broker in a session of its own: no signal meant for its starter reaches it. It shares ``kept_open``.

    ``ends_with_us``: it stops when this process is gone, however that ended: only this one holds the pipe.
    """
    command = [sys.executable, "-m", "broker_core", "serve", "--data-dir", str(data_dir.absolute())]
    command += ["--port", str(ports.service), "--http-port", str(ports.http), "--idle-stop", str(idle_stop_s)]
    command += ["--set", f"logFile={(data_dir / EMBEDDED_LOG_FILE).absolute()}"]  # so that the broker keeps it short
    if ends_with_us:
        command.append("--stop-with-stdin")
    stdin = subprocess.PIPE if ends_with_us else subprocess.DEVNULL
    with open(data_dir / EMBEDDED_LOG_FILE, "ab", opener=private_opener) as log:
        return subprocess.Popen(
            command, stdin=stdin, stdout=log, stderr=log, start_new_session=True, pass_fds=kept_open
        )


def _await_ready(data_dir: Path, process: subprocess.Popen[bytes], *, only: int | None = None) -> RuntimeInfo:
    """Wait until ``process``, or another one that was quicker, serves ``data_dir``; ``only``: that one and no other."""
    deadline = _clock.monotonic() + START_TIMEOUT_S
    while _clock.monotonic() < deadline:
        ended = process.poll()
        if (info := find(data_dir)) is not None and only in (None, info.pid):
            return info
        if ended is not None:
            raise EmbeddedBrokerError(
                f"the embedded broker of {data_dir} ended with code {ended} at its start: {_last_words(data_dir)}",
                hint=f"see {data_dir / EMBEDDED_LOG_FILE}",
            )
        _clock.sleep(_POLL_S)
    _end(process)
    raise OperationTimeoutError(
        f"the embedded broker of {data_dir} was not ready in {START_TIMEOUT_S:.0f} s",
        hint=f"see {data_dir / EMBEDDED_LOG_FILE}",
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _is_alive(pid: int) -> bool:
    """Whether there is such a process; if not, another one may have its port by now."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # It is another user's.
    return True


def _accepts(service_url: str) -> bool:
    parts = urlsplit(service_url)
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=_CONNECT_TIMEOUT_S):
            return True
    except OSError:
        return False


def _last_ports(data_dir: Path) -> Ports:
    try:
        with open(data_dir / PORTS_FILE, "rb", opener=private_opener) as file:
            kept = json.load(file)
        return Ports(int(kept["service"]), int(kept["http"]))
    except (FileNotFoundError, ValueError, OverflowError, KeyError, TypeError):
        return Ports()


def _keep_ports(data_dir: Path, info: RuntimeInfo) -> None:
    ports = Ports(urlsplit(info.service_url).port or 0, urlsplit(info.http_url).port or 0)
    replace_private(data_dir / PORTS_FILE, json.dumps(ports._asdict()).encode())


def _last_words(data_dir: Path) -> str:
    try:
        with open(data_dir / EMBEDDED_LOG_FILE, "rb", opener=private_opener) as log:
            lines = log.read()[-_LOG_TAIL_BYTES:].decode(errors="replace").strip().splitlines()
    except FileNotFoundError:
        return "it left no log"
    if not lines:
        return "it said nothing"
    starts = [number for number, line in enumerate(lines) if line.startswith("error:")]
    return "; ".join(lines[starts[-1] :] if starts else lines[-1:])


# -- folders of local()


@contextlib.contextmanager
def _passing_folder() -> Iterator[tuple[Path, int]]:
    """A new folder among the system's temporary ones, with the number of its locked file. The folder is deleted behind
    the block, or later if its process is killed."""
    _sweep()
    path = Path(tempfile.mkdtemp(prefix=_PASSING))
    draft = path / f"{_OWNER_FILE}.new"
    with open(draft, "xb", opener=private_opener) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        draft.rename(path / _OWNER_FILE)
        try:
            yield path, lock.fileno()
        finally:
            shutil.rmtree(path, ignore_errors=True)


def _sweep() -> None:
    """Delete the folders whose owner and broker have both ended."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PASSING}*"):
        with contextlib.suppress(OSError), _abandoned(path):  # another user's, in use, or swept already
            shutil.rmtree(path)


@contextlib.contextmanager
def _abandoned(path: Path) -> Iterator[None]:
    """Hold the lock of a folder of ours; OSError if there is none to be had."""
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise PermissionError(f"{path} is no folder of this user")
    number = os.open(path / _OWNER_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(number)
