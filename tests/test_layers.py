# SPDX-License-Identifier: Apache-2.0
"""The architecture as a test: imports point downwards only, and pure packages do no input or output of their own.

Reads the source of every product module, imports inside functions and ``import_module("...")`` included.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.source_trees import parsed

REPOSITORY: Final = Path(__file__).resolve().parents[1]

_BASE: Final = {"base"}
_WIRE: Final = _BASE | {"wire"}
_SCHEMAS: Final = _WIRE | {"schemas"}
_VALUES: Final = _SCHEMAS | {"values"}
MAY_IMPORT: Final[dict[str, set[str]]] = {
    "base": _BASE,
    "wire": _WIRE,
    "schemas": _BASE | {"schemas"},
    "values": _VALUES,
    "storage": _WIRE | {"storage"},
    "broker": _SCHEMAS | {"storage", "broker"},
    "client": _VALUES | {"client"},
    "server": _SCHEMAS | {"storage", "broker", "server"},
    "cli": _VALUES | {"storage", "broker", "client", "server", "cli"},
    "testing": _VALUES | {"storage", "broker", "client", "testing"},
    "spark": _VALUES | {"client", "spark"},
}
"""Layer to the layers whose modules it may import. Nobody but ``testing`` itself may import ``testing``."""

ALLOWED_UPWARDS: Final[dict[tuple[str, str], str]] = {
    ("broker_core/__main__.py", "cli"): "the door of `python -m broker_core` is the command itself",
}
"""Exceptions to the above, each with its reason."""

PURE: Final = ("base", "wire", "schemas", "values", "storage", "broker")

IO_MODULES: Final = {
    *("asyncio", "concurrent", "multiprocessing", "select", "selectors", "signal", "subprocess", "threading"),
    *("fcntl", "glob", "io", "mmap", "os", "pathlib", "shutil", "sqlite3", "tempfile"),
    *("socket", "socketserver", "ssl"),
    *("random", "secrets", "time", "uuid"),
}

ALLOWED_IO: Final[dict[str, tuple[set[str], str]]] = {
    "broker_core/base/clock.py": ({"time"}, "the time seam: the only place that reads a clock"),
    "broker_core/base/local_access.py": (
        {"os", "pathlib", "secrets"},
        "one way to make the token of a data directory and to find it, for the broker and for programs of its user",
    ),
    "broker_core/base/pem_files.py": ({"os", "ssl"}, "one way to read certificates for clients and the broker"),
    "broker_core/base/private_files.py": ({"os"}, "the rule of how any file of a data directory is opened"),
    "broker_core/base/runtime.py": (
        {"fcntl", "os", "pathlib"},
        "PurePath, which touches no file, and the number and the lock of a file that is open already",
    ),
    "broker_core/storage/catalogue/database.py": ({"sqlite3"}, "tables in memory, which no file is opened for"),
    "broker_core/storage/disk.py": (
        {"fcntl", "os", "pathlib"},
        "the disk seam: the only place that touches files",
    ),
    "broker_core/wire/core/mode.py": ({"os"}, "the environment decides whether compiled modules are imported"),
}
"""Pure files that need one of IO_MODULES after all, with the reason."""

ACYCLIC_ROOMS: Final = ("broker", "client", "spark")
"""Packages whose rooms need each other in one direction only; ARCHITECTURE.md has a picture of them."""

HEAVY: Final = frozenset({"numpy", "pyarrow", "pandas", "pyspark"})
BATCH_CODEC: Final = "broker_core/wire/batch/"
BROKER_PROCESS: Final = ("base", "schemas", "storage", "broker", "server")


@cache
def _sources() -> list[tuple[str, str, ast.Module]]:
    """Every product module: its path, its layer, its tree."""
    found = []
    roots = [*REPOSITORY.glob("broker_core/**/*.py"), *REPOSITORY.glob("pulsarish_spark/**/*.py")]
    for path in [*roots, REPOSITORY / "pyspark_pulsarish.py"]:
        name = path.relative_to(REPOSITORY).as_posix()
        if path.exists() and not name.endswith("_pb2.py"):
            found.append((name, _layer(name), parsed(path)))
    return found


def _layer(name: str) -> str:
    """``broker_core/wire/frames.py`` is in ``wire``; ``broker_core`` itself and Spark's parts have their own names."""
    parts = name.replace(".py", "").split("/")
    if parts[0] in ("pulsarish_spark", "pyspark_pulsarish"):
        return "spark"
    return parts[1] if len(parts) > 1 and (REPOSITORY / "broker_core" / parts[1]).is_dir() else ""


def _imports(tree: ast.Module, name: str) -> Iterator[str]:
    """Full names of everything that a module imports, wherever in it."""
    package = name.removesuffix(".py").removesuffix("/__init__").split("/")
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (each.name for each in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                above = package[: len(package) - level + name.endswith("__init__.py")] if level else []
                base = ".".join([*above, *([module] if module else [])])
                yield from (f"{base}.{each.name}" for each in names)
            case ast.Call(
                func=ast.Name(id="__import__" | "import_module") | ast.Attribute(attr="import_module"), args=args
            ):
                yield from (arg.value for arg in args if isinstance(arg, ast.Constant) and isinstance(arg.value, str))


def _product_layer(imported: str) -> str | None:
    """The layer that an import reaches into, or None if it is not ours."""
    parts = imported.split(".")
    if parts[0] not in ("broker_core", "pulsarish_spark", "pyspark_pulsarish"):
        return None
    return _layer("/".join(parts))


def test_imports_point_downwards() -> None:
    """A module imports only from its own layer and those that the contract puts below it."""
    wrong = [
        f"{name} imports {imported}"
        for name, layer, tree in _sources()
        for imported in _imports(tree, name)
        if (target := _product_layer(imported))
        and target not in MAY_IMPORT.get(layer, set())
        and (name, target) not in ALLOWED_UPWARDS
    ]
    assert wrong == []


def test_no_two_modules_need_each_other() -> None:
    """Not even by a long way round, for their types, or inside functions: one of two can be read without the other."""
    modules = {_module(name) for name, _, _ in _sources()}
    needs: dict[str, set[str]] = {}
    for name, _, tree in _sources():
        found = {_longest_known(imported, modules) for imported in _imports(tree, name)}
        needs[_module(name)] = found - {"", _module(name)}
    assert _circles(needs) == {}, "these are in a circle, or need one that is"


@pytest.mark.parametrize("package", ACYCLIC_ROOMS)
def test_no_two_rooms_need_each_other(package: str) -> None:
    """A room is a directory of a package, or a module beside them: one can be read before the rooms that need it."""
    assert _circles(_needs_of_rooms(package)) == {}, "these rooms are in a circle, or need one that is"


def test_the_picture_of_the_rooms_is_true() -> None:
    """ARCHITECTURE.md draws the rooms of the broker: each stands above, or on its line before, all that it needs."""
    page = (REPOSITORY / "ARCHITECTURE.md").read_text(encoding="utf-8")
    _, picture, below = page.partition("## The rooms of the broker")[2].split("```", 2)
    drawn = [
        room
        for line in picture.splitlines()
        for names in re.findall(r"(?:^|> )([a-z_]+(?:, [a-z_]+)*)(?=\s{2,}| -->|$)", line)
        for room in names.split(", ")
    ]
    left_out = re.findall(r"`(\w+)`", below.partition("\n\n#")[0])
    needs = _needs_of_rooms("broker")
    assert sorted([*drawn, *left_out]) == sorted(needs)
    places = {room: place for place, room in enumerate(drawn)}
    assert [
        f"{room} needs {each}, which is drawn above it"
        for room in drawn
        for each in needs[room]
        if each in places and places[each] < places[room]
    ] == []


def test_the_table_of_the_rooms_of_the_client_is_true() -> None:
    """ARCHITECTURE.md lists them, too: a room needs those that it names, what these need, and nothing above it."""
    page = (REPOSITORY / "ARCHITECTURE.md").read_text(encoding="utf-8")
    section = page.partition("## The rooms of the client")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:-1] for line in section.splitlines() if line.startswith("| `")]
    named = {_code_words(room)[0]: _code_words(needs) for room, _owns, needs in rows}
    left_out = _code_words(section.partition("Not listed: ")[2].partition(".")[0])
    needs = _needs_of_rooms("client")
    assert sorted([*named, *left_out]) == sorted(needs)
    below: dict[str, set[str]] = {}
    for room in reversed(named):
        below[room] = set().union(named[room], *(below[each] for each in named[room]))
        assert set(named[room]) <= needs[room] <= below[room] | set(left_out), room


def _code_words(text: str) -> list[str]:
    return re.findall(r"`(\w+)`", text)


def _needs_of_rooms(package: str) -> dict[str, set[str]]:
    """Each room of ``package`` with the others that it imports from."""
    modules = {_module(name) for name, _, _ in _sources()}
    needs: defaultdict[str, set[str]] = defaultdict(set)
    door = "pulsarish_spark" if package == "spark" else f"broker_core.{package}"
    for name, _, tree in _sources():
        if room := _room(_module(name), door):
            imported = {_longest_known(each, modules) for each in _imports(tree, name)}
            needs[room] |= {_room(each, door) for each in imported} - {room, ""}
    return dict(needs)


def _room(module: str, door: str) -> str:
    """``dispatch`` for what is in that directory of its package ``door``, however deep; "" for all outside of rooms."""
    return module.removeprefix(f"{door}.").split(".")[0] if module.startswith(f"{door}.") else ""


def _circles(needs: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """What is left of ``needs`` when all that need nothing that is left are taken away, again and again."""
    left = dict(needs)
    while free := {each for each, needed in left.items() if not needed & left.keys()}:
        for each in free:
            del left[each]
    return left


def _module(name: str) -> str:
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _longest_known(imported: str, modules: set[str]) -> str:
    """The module that ``imported`` or what is in it belongs to; "" if none of ours."""
    while imported and imported not in modules:
        imported = imported.rpartition(".")[0]
    return imported


def test_pure_packages_do_no_input_or_output() -> None:
    """Time, files, sockets, threads and randomness come in through a seam: Clock, Timers, Disk, a sink."""
    wrong = []
    for name, layer, tree in _sources():
        if layer in PURE:
            allowed = ALLOWED_IO.get(name, (set(), ""))[0]
            imported = {full.split(".")[0] for full in _imports(tree, name)}
            wrong += [f"{name} imports {module}" for module in sorted((imported & IO_MODULES) - allowed)]
            wrong += [f"{name} {call}" for call in _direct_io(tree) if "os" not in allowed]
    assert wrong == []


def test_only_the_time_seam_imports_time() -> None:
    """Every wait of the product can be made virtual: it asks a Clock, arms a timer, or is one of asyncio's."""
    importers = [
        name for name, _, tree in _sources() if "time" in {each.split(".")[0] for each in _imports(tree, name)}
    ]
    assert importers == ["broker_core/base/clock.py"]


def _direct_io(tree: ast.Module) -> Iterator[str]:
    """Calls that need no import: ``open`` and the clock of ``datetime``."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="open" | "input" | "print" as called)):
                yield f"line {node.lineno}: {called}()"
            case ast.Attribute(value=ast.Name(id="datetime" | "date"), attr="now" | "today" | "utcnow" as called):
                yield f"line {node.lineno}: {called}"


def test_a_runtime_file_reader_builds_names_only() -> None:
    """base/runtime.py may use pathlib for PurePath, nothing else of it."""
    tree = next(tree for name, _, tree in _sources() if name == "broker_core/base/runtime.py")
    assert {full for full in _imports(tree, "") if full.startswith("pathlib")} == {"pathlib.PurePath"}


def test_the_admin_asks_the_broker_and_does_not_reach_through() -> None:
    """The parts of a topic and of a subscription are theirs: they answer questions about them."""
    parts = {"log", "cursor", "journal", "dispatcher", "reader", "expiry", "deduplication"}
    wrong = [
        f"{name} line {node.lineno}: .{node.attr}"
        for name, _, tree in _sources()
        if name.startswith("broker_core/server/admin/")
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in parts
    ]
    assert wrong == []


def test_the_broker_process_does_without_the_heavy_libraries() -> None:
    """numpy and pyarrow are for clients and Spark; the broker starts fast and never looks into a batch."""
    wrong = [
        f"{name} imports {imported}"
        for name, layer, tree in _sources()
        for imported in _imports(tree, name)
        if (layer in BROKER_PROCESS and imported.startswith("broker_core.wire.batch"))
        or (layer in (*BROKER_PROCESS, "wire") and imported.split(".")[0] in HEAVY and BATCH_CODEC not in name)
    ]
    assert wrong == []


def test_a_started_broker_has_none_of_them_loaded() -> None:
    """The same, asked of a real interpreter that has imported all that ``serve`` needs."""
    code = f"import sys, broker_core.server.process; print(sorted(set({sorted(HEAVY)!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_options_are_checked_without_a_client() -> None:
    """Spark starts Python processes that do nothing else; numpy or a client would take most of their time."""
    heavy = sorted(HEAVY | {"asyncio", "broker_core.client.async_client"})
    code = f"import sys, pulsarish_spark.options; print(sorted(set({heavy!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_exception_is_still_needed() -> None:
    """An exception for a file that is gone, or no longer uses it, is removed."""
    by_name = {name: tree for name, _, tree in _sources()}
    for name, (modules, reason) in ALLOWED_IO.items():
        assert reason
        assert {full.split(".")[0] for full in _imports(by_name[name], name)} & modules, name
    for (name, target), reason in ALLOWED_UPWARDS.items():
        assert reason
        assert target in {_product_layer(full) for full in _imports(by_name[name], name)}, name
