"""Walk-forward training on real prices: EURUSD (hourly) and GOOG (daily), as PyPI's package `backtesting` carries them.

    smoke_test.py VULPES CACHE_FOLDER

The package (200 kB) is fetched once into the cache folder. Skipped (77) without it and without a network.
"""

import json
import math
import subprocess
import sys
import time
import zipfile
from pathlib import Path

from vulpes_run import DONE, SKIPPED, FolderTest, call, main, without

CACHE = Path(sys.argv.pop(2))

# Widths for a card of 4 GB on EURUSD, the demo network on GOOG; few steps: that it runs, not that it earns.
COMMON = {"train.epoch_steps": 50, "replay.rows": 32768, "agent.warmup_steps": 20, "agent.blend_steps": 40,
          "collect.window": 128, "folds.kind": "rolling"}  # fmt: skip
CASES = {
    "EURUSD": {**COMMON, "train.steps": 150, "folds.count": 2,
               "network.hidden1": 512, "network.hidden2": 256, "network.head_hidden": 128},
    "GOOG": {**COMMON, "train.steps": 200, "folds.count": 3},
}  # fmt: skip


def wheel() -> Path | None:
    def found():
        return sorted(CACHE.glob("backtesting-*.whl"))

    if not found():
        CACHE.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(CACHE), "backtesting"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if result.returncode != 0:
            print(f"skipped: the package 'backtesting' cannot be downloaded: {result.stderr.strip()[-300:]}")
    return found()[-1] if found() else None


def numbers(value, path=""):
    """(name, number or None) of everything in a JSON value."""
    if isinstance(value, dict):
        for k, v in value.items():
            yield from numbers(v, f"{path}/{k}")
    elif isinstance(value, list):
        for i, v in enumerate(value):
            yield from numbers(v, f"{path}[{i}]")
    elif value is None or isinstance(value, (int, float)):
        yield path, value


class Smoke(FolderTest):
    def walk_forward(self, name):
        data = self.folder / f"{name}.csv"
        with zipfile.ZipFile(wheel()) as archive:
            data.write_bytes(archive.read(f"backtesting/test/{name}.csv"))
        settings, run = CASES[name], self.run_in(name)
        began = time.monotonic()
        options = [part for k, v in settings.items() for part in ("--set", f"{k}={v}")]
        call("train", "--out", run.path, "--data", data, *options, code=DONE, timeout=280)
        seconds = time.monotonic() - began
        summary = run.summary()
        test = summary["test"]
        self.assertEqual([f["fold"] for f in summary["folds"]], list(range(1, settings["folds.count"] + 1)))
        for path, value in numbers(summary):
            # An undefined figure is absent, never null or NaN.
            self.assertTrue(value is not None and math.isfinite(value), f"{path} is {value}")
        for line in (run.path / "metrics.jsonl").read_text().splitlines():
            for path, value in numbers(json.loads(line)):
                self.assertTrue(value is not None and math.isfinite(value), f"{path} is {value}")
        self.assertNotIn("optimal_fraction", test)
        # Ranges of neighbouring folds follow each other; every decision of them is in the test.
        bars = len(data.read_text().splitlines()) - 1
        self.assertGreater(test["bars"], 0.2 * bars)
        metrics = test["metrics"]
        for figure in ("total_return", "max_drawdown", "annual_volatility", "turnover", "mean_absolute_exposure"):
            self.assertIn(figure, metrics)
        self.assertAlmostEqual(sum(test["exposure_histogram"]), 1, places=9)
        self.assertAlmostEqual(math.log1p(metrics["total_return"]), test["bars"] * test["growth_per_bar"], places=9)
        self.assertEqual(test["comparisons"]["flat"]["growth_per_bar"], 0)
        self.assertIn("buy and hold", test["comparisons"])
        # Without a trade there is no hit rate, and without a closed one no profit factor.
        self.assertEqual("hit_rate" in metrics, metrics.get("trades", 0) > 0)
        self.assertEqual(len(run.metrics()), settings["folds.count"] * -(-settings["train.steps"] // 50))

        call("evaluate", run.best(settings["folds.count"]), "--out", self.folder / "last", code=DONE)
        call("evaluate", run.best(), "--data", data, "--out", self.folder / "all", code=DONE)
        self.assertGreater(self.run_in("all").summary()["test"]["bars"], test["bars"])
        print(f"{name}: {test['bars']} test bars in {settings['folds.count']} folds, {seconds:.1f} s; "
              f"growth {1e4 * test['growth_per_bar']:.3f} bp a bar, {without(metrics, 'growth_per_bar')}")  # fmt: skip

    def test_eurusd(self):
        self.walk_forward("EURUSD")

    def test_goog(self):
        self.walk_forward("GOOG")


if __name__ == "__main__":
    if wheel() is None:
        sys.exit(SKIPPED)
    main()
