# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.fuzz.payloads``: mutated payloads of every type of schema, in batches with sound ones.

It fails where a decoder raises or ends its process, where a row is neither a value nor null with a flaw, where a sound
neighbour is not what it is alone, where a column is not sound by Arrow's own full check, where memory leaves its bound,
and where a batch takes too long. Each case runs in a process of its own with a bound on its address space. Payloads
follow from the seed: ``--seed S`` repeats a failure.
"""

from __future__ import annotations

import argparse
import random
import resource
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from broker_core.values.decoder import ValueDecoder
from broker_core.values.decoding import Decoded
from tests.fuzz.payload_cases import Case, cases
from tests.fuzz.payload_mutations import mutated

_ROWS: Final = (1, 1, 2, 2, 8, 32, 64)
"""Rows of a batch: few may all be of the kind that is read together."""
_MIB: Final = 1 << 20
_SPACE_MIB: Final = 1_536
"""Address space beyond what is taken at the start: Arrow's pools and the core's cells for a batch of some megabytes."""
_BATCH_S_MAX: Final = 20.0
_REASON_MAX: Final = 300
_RECURSIVE_DEPTH: Final = 2
_WEIGHT: Final = 10
_UNKNOWN: Final = (2, -1, 2**63 - 1, -(2**63))


@dataclass(slots=True)
class Found:
    """Counts of a run. ``mutated``: payloads; ``flaws``: those of them that are none."""

    mutated: int = 0
    flaws: int = 0
    slowest_s: float = 0.0
    failures: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of a batch. ``is_sound``: it has to be what it is alone."""

    payload: bytes | None
    version: int | None
    key: bytes | None
    is_sound: bool


def run(case: Case, seed: int, amount: int) -> Found:
    """Batches of ``case`` until ``amount`` payloads were mutated."""
    chance = random.Random(f"{seed} {case.name}")
    decoder = decoder_of(case)
    found = Found()
    while found.mutated < amount and not found.failures:
        rows = [_row(chance, case) for _ in range(chance.choice(_ROWS))]
        found.mutated += sum(not row.is_sound for row in rows)
        began_s = time.monotonic()
        try:
            _check(case, decoder, rows, found)
        except Exception as error:  # noqa: BLE001 - any error is a failure, and names the batch
            found.failures.append(f"{case.name}: {type(error).__name__}: {error}: {_shown(case, rows)}")
        found.slowest_s = max(found.slowest_s, time.monotonic() - began_s)
    if found.slowest_s > _BATCH_S_MAX:
        found.failures.append(f"{case.name}: a batch took {found.slowest_s:.1f} s")
    return found


def shares(amount: int) -> list[tuple[Case, int]]:
    """Each case with its share of ``amount`` payloads: a primitive has little that could go wrong."""
    weights = [(each, 1 if each.reader.type.is_primitive else _WEIGHT) for each in cases()]
    total = sum(weight for _, weight in weights)
    return [(each, -(-amount * weight // total)) for each, weight in weights]


def decoder_of(case: Case) -> ValueDecoder:
    """A decoder that knows the versions of ``case``."""
    decoder = ValueDecoder(case.reader, recursive_depth=_RECURSIVE_DEPTH)
    for version, info in case.versions.items():
        decoder.add(version, info)
    return decoder


def _row(chance: random.Random, case: Case) -> _Row:
    version = chance.choice(list(case.versions))
    payload = case.payload(chance, version)
    key = b"\0\0\0\7" if case.has_keys else None
    if chance.random() < 0.4:
        return _Row(payload, version, key, is_sound=True)
    told: int | None = version
    if chance.random() < 0.1:
        told = chance.choice((*_UNKNOWN, None, 1 - version))
    else:
        payload = mutated(chance, payload, case.payload(chance, chance.choice(list(case.versions))))
        key = mutated(chance, key, payload) if key is not None and chance.random() < 0.2 else key
    return _Row(None if chance.random() < 0.02 else payload, told, key, is_sound=False)


def _check(case: Case, decoder: ValueDecoder, rows: list[_Row], found: Found) -> None:
    decoded = _decoded(decoder, rows, has_keys=case.has_keys)
    decoded.rows.validate(full=True)
    assert (decoded.rows.type, len(decoded.rows)) == (decoder.arrow, len(rows)), "another column"
    flawed = [each.row for each in decoded.flaws]
    assert flawed == sorted(set(flawed)), "flaws are not in order, or twice"
    assert all(0 < len(each.reason) <= _REASON_MAX for each in decoded.flaws), max(
        decoded.flaws, key=lambda f: f.reason
    )
    nulls = decoded.rows.is_null().to_pylist()
    for at, row in enumerate(rows):
        assert not nulls[at] or at in flawed or _is_null(row), f"row {at} is null without a flaw"
        assert nulls[at] or at not in flawed, f"row {at} has a flaw and a value"
    sound = [at for at, row in enumerate(rows) if row.is_sound]
    assert not set(sound) & set(flawed), f"sound rows have flaws: {[e for e in decoded.flaws if e.row in sound]}"
    alone = _decoded(decoder, [rows[at] for at in sound], has_keys=case.has_keys)
    assert decoded.rows.take(pa.array(sound, pa.int64())).equals(alone.rows), "sound rows are not what they are alone"
    found.flaws += len(flawed)


def _is_null(row: _Row) -> bool:
    """Whether the row may be null without a flaw: JSON has a word for that."""
    return row.payload is None or row.payload.strip() == b"null"


def _decoded(decoder: ValueDecoder, rows: list[_Row], *, has_keys: bool) -> Decoded:
    return decoder.decode(
        pa.array([row.payload for row in rows], pa.binary()),
        pa.array([row.version for row in rows], pa.int64()),
        pa.array([row.key for row in rows], pa.binary()) if has_keys else None,
    )


def _shown(case: Case, rows: list[_Row]) -> str:
    """The mutated rows that fail alone, or all: what has to be fixed is told by few bytes."""
    guilty = []
    for row in rows:
        try:
            _check(case, decoder_of(case), [row], Found())
        except Exception:  # noqa: BLE001 - the same error
            guilty.append(row)
    told = [f"version {row.version} {'' if row.payload is None else row.payload.hex()[:400]}" for row in guilty[:3]]
    return "; ".join(told) or "no row alone"


# -- the program


def _limit_space() -> None:
    with open("/proc/self/statm", encoding="ascii") as statm:
        taken = int(statm.read().split()[0]) * resource.getpagesize()
    most = taken + _SPACE_MIB * _MIB
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _run_one(case: Case, seed: int, amount: int) -> int:
    _limit_space()
    before_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    began_s = time.monotonic()
    found = run(case, seed, amount)
    took_s = time.monotonic() - began_s
    more_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before_mib
    sys.stdout.write(
        f"{case.name:22} {found.mutated:9,} {found.flaws:9,} {found.slowest_s * 1000:10.0f} "
        f"{more_mib:9.0f} {took_s:8.1f}\n"
    )
    sys.stdout.write("".join(f"    WRONG: {each}\n" for each in found.failures))
    return 1 if found.failures else 0


def main() -> int:
    """The table on stdout; 1 if anything went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.payloads", description=__doc__)
    parser.add_argument("--payloads", type=int, default=200_000, help="mutated payloads of all cases (200,000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="the name of one case, which is run in this process")
    args = parser.parse_args()
    if args.only:
        (case,) = [each for each in cases() if each.name == args.only]
        return _run_one(case, args.seed, args.payloads)
    sys.stdout.write(f"{'case':22} {'mutated':>9} {'flaws':>9} {'slowest ms':>10} {'more MiB':>9} {'took s':>8}\n")
    sys.stdout.flush()
    failures = 0
    for case, amount in shares(args.payloads):
        command = [sys.executable, "-m", "tests.fuzz.payloads", "--only", case.name]
        done = subprocess.run([*command, "--seed", str(args.seed), "--payloads", str(amount)], check=False)
        if done.returncode:
            failures += 1
            sys.stdout.write(f"    WRONG: {case.name} ended with {done.returncode}\n")
            sys.stdout.flush()
    sys.stdout.write(f"seed {args.seed}, {failures} cases with problems\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
