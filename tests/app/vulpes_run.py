"""Runs the vulpes program for tests: a tiny configuration, its run folders, and what two runs are compared by.

Python's standard library only. Each test file is called with the path of the program as its first argument.
"""

import csv
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

DONE, FAILED, BAD_USAGE, INTERRUPTED, SKIPPED = 0, 1, 2, 75, 77

# Columns of metrics.csv that say how fast the run was; all others are a function of configuration and seed.
TIME_COLUMNS = {"steps_per_second", "bar_steps_per_second", "validation_seconds", "memory_mb"}

# A run takes about half a second on an idle core.
TINY = {
    "network.hidden1": 16, "network.hidden2": 16, "network.head_hidden": 8, "network.atoms": 11,
    "agent.warmup_steps": 100, "agent.blend_steps": 100, "optimiser.ramp_steps": 50,
    "train.steps": 800, "train.epoch_steps": 100, "train.batch": 32,
    "collect.envs": 16, "collect.window": 32, "replay.rows": 2048, "replay.learning_starts": 256,
    "synthetic.train_bars": 4096, "synthetic.validation_bars": 1024, "synthetic.test_bars": 1024,
    "synthetic.test_paths": 2, "synthetic.optimum_draws": 512, "synthetic.optimum_points": 11,
}  # fmt: skip

# A second set of code paths: n-step windows, spectral norm, softmax exploration.
OTHER_PATHS = {"agent.n_step": 3, "optimiser.spectral_trunk": 3, "optimiser.spectral_output": 4,
               "collect.explore": "softmax"}  # fmt: skip

# Every part of learning, in steps few enough for TINY.
EVERYTHING = {"network.survival": 0.7, "agent.scale_trunk_gradient": "true", "cql.weight": 0.01, "diversity.weight": 0.01,
              "auxiliary.weight": 0.05, "hindsight.share": 0.5, "reward.goal_bonus": 0.2, "goal.spread": 0.05,
              "pruning.sparsity": 0.6, "pruning.every": 30, "guard.spike_factor": 5, "guard.spike_floor": 0.001,
              "guard.snapshot_steps": 20, "causal.every": 25, "causal.rows": 16, "optimiser.spectral_trunk": 2,
              "optimiser.spectral_output": 3}  # fmt: skip


def program() -> str:
    return str(Path(sys.argv[1]).resolve())


def set_options(settings: dict) -> list:
    return [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]


def environment(changes: dict | None = None) -> dict:
    values = dict(os.environ)
    values.setdefault("OMP_NUM_THREADS", "2")
    values.setdefault("OMP_PROC_BIND", "false")
    values.update(changes or {})
    return values


def call(*arguments, code=None, timeout=120, env=None):
    """Runs `vulpes arguments...`; with `code`, fails unless it exits with it."""
    command = [program(), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment(env), check=False)
    if code is not None and result.returncode != code:
        raise AssertionError(f"exit code {result.returncode}, expected {code}: {' '.join(command)}\n"
                             f"{result.stdout[-2000:]}\n{result.stderr[-4000:]}")  # fmt: skip
    return result


class Run:
    """A run folder."""

    def __init__(self, path):
        self.path = Path(path)
        self.checkpoints = self.path / "checkpoints"

    def train(self, settings: dict, *options, code=DONE, top=(), **more):
        """A new run with TINY and `settings`."""
        return call(*top, "train", "--out", self.path, *set_options({**TINY, **settings}), *options, code=code, **more)

    def resume(self, code=DONE, options=(), **more):
        return call("train", "--resume", "--out", self.path, *options, code=code, **more)

    def start(self, settings: dict | None = None):
        """The process of a new run, or with `settings` None of a resumed one."""
        what = ["--resume"] if settings is None else set_options({**TINY, **settings})
        return subprocess.Popen([program(), "train", "--out", str(self.path), *what], stdout=subprocess.DEVNULL,
                                stderr=subprocess.PIPE, text=True, env=environment())  # fmt: skip

    def full_checkpoints(self) -> list:
        """(fold, step, path), oldest first."""
        found = []
        for path in self.checkpoints.glob("fold-*-step-*.h5"):
            fold, step = re.fullmatch(r"fold-(\d+)-step-(\d+)\.h5", path.name).groups()
            found.append((int(fold), int(step), path))
        return sorted(found)

    def newest(self) -> Path:
        return self.full_checkpoints()[-1][2]

    def step(self) -> int:
        """Of the newest full checkpoint; 0 without one."""
        found = self.full_checkpoints() if self.checkpoints.is_dir() else []
        return found[-1][1] if found else 0

    def best(self, fold=1) -> Path:
        return self.checkpoints / f"fold-{fold}-best.h5"

    def summary(self) -> dict:
        return json.loads((self.path / "summary.json").read_text())

    def metrics(self) -> list:
        """Rows of metrics.csv without the columns of time."""
        with open(self.path / "metrics.csv", newline="") as file:
            return [{k: v for k, v in row.items() if k not in TIME_COLUMNS} for row in csv.DictReader(file)]

    def rows(self) -> int:
        """Complete rows of metrics.csv so far."""
        try:
            return max(0, (self.path / "metrics.csv").read_bytes().count(b"\n") - 1)
        except FileNotFoundError:
            return 0

    def files(self) -> list:
        return sorted(str(p.relative_to(self.path)) for p in self.path.rglob("*"))


def parameter_hash(checkpoint) -> str:
    """As `vulpes info` prints it."""
    return re.search(r"^parameter hash ([0-9a-f]{16})$", call("info", checkpoint, code=DONE).stdout, re.M).group(1)


def digest(path) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def interrupt_after(run: Run, process, rows: int, how) -> int:
    """Waits for `rows` more rows of metrics and a third of an epoch, calls how(run, process), returns the exit code."""
    before, seen, last_change = run.rows(), 0, time.monotonic()
    while seen < rows and process.poll() is None and time.monotonic() < last_change + 60:
        time.sleep(0.001)
        if run.rows() > before + seen:
            epoch, last_change = time.monotonic() - last_change, time.monotonic()
            seen = run.rows() - before
            if seen >= rows and rows > 1:
                time.sleep(epoch / 3)
    how(run, process)
    process.communicate(timeout=60)
    return process.returncode


def signal_process(number):
    return lambda run, process: process.send_signal(number)


def touch_stop(run: Run, process) -> None:
    (run.path / "stop").touch()


def without(record: dict, *names) -> dict:
    return {k: v for k, v in record.items() if k not in names}


class FolderTest(unittest.TestCase):
    """Each test has an empty folder of its own."""

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="vulpes_app_"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def run_in(self, name: str) -> Run:
        return Run(self.folder / name)

    def trained(self, name: str, settings: dict | None = None, *options, **more) -> Run:
        run = self.run_in(name)
        run.train(settings or {}, *options, **more)
        return run

    def assert_same_result(self, a: Run, b: Run):
        """Two finished runs of one configuration: the same bits in everything but the times."""
        self.assertEqual(a.metrics(), b.metrics())
        self.assertEqual(without(a.summary(), "seconds_training"), without(b.summary(), "seconds_training"))
        self.assertEqual(a.newest().name, b.newest().name)
        self.assertEqual(parameter_hash(a.newest()), parameter_hash(b.newest()))
        # Parameters, moments, replay, accounts, counters, records: the whole state.
        self.assertEqual(digest(a.newest()), digest(b.newest()), "the final training state differs")
        self.assertEqual(digest(a.best()), digest(b.best()), "the best policy differs")


def main():
    """`test.py PROGRAM [unittest options]`."""
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)


SIGNALS = {"SIGUSR1": signal.SIGUSR1, "SIGTERM": signal.SIGTERM, "SIGINT": signal.SIGINT}
