"""Errors of the command line: exit codes, one-line messages that say what, where and what to do, nothing left behind."""

import csv
import datetime
import math
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from vulpes_run import BAD_USAGE, DONE, FAILED, TINY, FolderTest, Run, call, digest, main, set_options

SHORT = {"train.steps": 20, "train.epoch_steps": 20}
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "numpy_policy.py"


def bars_csv(path: Path, count: int, change=lambda row, fields: fields, columns=(), seconds=3600) -> Path:
    """Hourly bars of a slow wave; `change(row, fields)` may spoil one (rows from 1, the header is line 1)."""
    lines = [",".join(["time", "open", "high", "low", "close", "volume", *columns])]
    for i in range(count):
        close, opened = (100 + math.sin(0.05 * k) + 0.2 * math.sin(1.7 * k) for k in (i + 1, i))
        fields = [str(1_600_000_000 + i * seconds), f"{opened:.6f}", f"{max(opened, close) + 0.1:.6f}",
                  f"{min(opened, close) - 0.1:.6f}", f"{close:.6f}", str(1000 + i % 7), *["1.5"] * len(columns)]  # fmt: skip
        lines.append(",".join(change(i + 1, fields)))
    path.write_text("\n".join(lines) + "\n")
    return path


def dated_csv(path: Path, dates) -> Path:
    """Bars at these dates."""
    return bars_csv(path, len(dates), lambda row, fields: [dates[row - 1].isoformat(), *fields[1:]])


def spoil(row: int, column: int, text: str):
    def change(i, fields):
        return [text if i == row and k == column else f for k, f in enumerate(fields)]

    return change


class ErrorTest(FolderTest):
    def refused(self, *arguments, code=BAD_USAGE, says=(), lines=1):
        """Runs it; expects `code` and a message of so many lines with all of `says` in it."""
        result = call(*arguments)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        message = [m for m in result.stderr.splitlines() if not m.startswith(("info: ", "warn"))]
        self.assertEqual(len(message), lines, result.stderr)
        for line in message:
            self.assertTrue(line.startswith("vulpes: "), line)
            self.assertLess(len(line), 500)
        for text in says:
            self.assertIn(text, result.stderr)
        return result

    def start_refused(self, settings: dict, *options, says=(), code=BAD_USAGE, lines=1):
        """A training that does not begin: no folder, or none of what was in it changed."""
        run = self.run_in("refused")
        arguments = ["train", "--out", run.path, *set_options({**TINY, **settings}), *options]
        self.refused(*arguments, code=code, says=says, lines=lines)
        self.assertFalse(run.path.exists(), "a failed start left a folder")
        run.path.mkdir()
        self.refused(*arguments, code=code, says=says, lines=lines)
        self.assertEqual(run.files(), [], "a failed start left files")
        run.path.rmdir()


class Usage(ErrorTest):
    def test_success(self):
        for arguments in (["--version"], ["--help"], ["info"], ["train", "--help"]):
            self.assertEqual(call(*arguments, code=DONE).stderr, "")

    def test_subcommands_and_options(self):
        self.refused("trian", says=["trian"])
        self.refused(says=["subcommand"])
        self.refused("train", "--ot", says=["--ot"])
        self.refused("data", says=["subcommand"])
        self.refused("evaluate", says=["CHECKPOINT"])
        self.refused("train", "--seed", "-1", says=["--seed"])
        self.refused("train", "--seed", "one", says=["--seed"])
        self.refused("--log-level", "loud", "info", says=["loud"])

    def test_missing_files(self):
        missing = self.folder / "missing"
        self.refused("train", missing, says=[str(missing)])
        self.refused("evaluate", missing, says=[str(missing)])
        self.refused("info", missing, says=[str(missing)])
        self.refused("data", "check", missing, says=[str(missing), "open, high, low, close"])
        self.start_refused({}, "--data", missing, says=[str(missing), "data check"])
        self.refused("evaluate", "none.h5", says=["none.h5", f"looked at {Path.cwd() / 'none.h5'}", "checkpoints/"])
        self.refused("info", self.folder, says=["is a folder"])
        bars = bars_csv(self.folder / "bars.csv", 20)
        self.start_refused({}, bars, says=[f"--data {bars}"])  # bars given as the configuration

    def test_a_missing_back_end_is_refused_before_the_market_is_built(self):
        for device in ("cuda", "openmp", "serial"):
            if f" {device}" not in call("info", code=DONE).stdout.splitlines()[1].lower():
                result = call("train", "--out", self.folder / "run", *set_options({"run.device": device}))
                self.assertEqual(result.returncode, BAD_USAGE)
                self.assertRegex(result.stderr, rf"\Avulpes: run.device: [^\n]*'{device}'[^\n]*\n\Z")
                self.assertFalse((self.folder / "run").exists())
                return
        self.skipTest("this build has every back end")

    def test_settings(self):
        self.start_refused({"agent.gama": 0.9}, says=["agent.gama", "agent.gamma"])
        self.start_refused({"agent.gamma": 1.5}, says=["agent.gamma", "1.5"])
        self.start_refused({"train.steps": "many"}, says=["train.steps", "many"])
        self.start_refused({"train.steps": 0}, says=["train.steps"])
        self.start_refused({"train.batch": 4096}, says=["replay.rows", "train.batch"])
        self.start_refused({"folds.only": 2}, says=["folds.only"])
        self.start_refused({"agent.vmin": 1, "agent.vmax": 1}, says=["agent.vmin", "agent.vmax"])
        self.start_refused({"collect.explore": "greedy"}, says=["collect.explore", "softmax"])
        self.start_refused({"run.device": "tpu"}, says=["run.device"])
        for batch in (8, 33):  # rows are handled in tiles of 16
            self.start_refused({"train.batch": batch}, says=["train.batch", str(batch), "multiple of 16"])
        self.start_refused({"network.hidden1": 20}, says=["hidden1", "20", "multiple of 8"])
        # Known from the settings alone: before a market is built.
        self.assertNotIn("info:", self.refused("train", "--out", self.folder / "x", "--set", "train.batch=40").stderr)
        self.start_refused({"train.batch": -1, "agent.gamma": 2}, says=["train.batch", "-1"])

    def test_configuration_file(self):
        config = self.folder / "run.toml"
        config.write_text("[agent]\ngama = 0.9\n")
        self.start_refused({}, config, says=[f"{config}:2:1", "agent.gamma"])  # after --set: not one of its values
        config.write_text("[agent]\ngamma = \n")
        self.start_refused({}, config, says=[f"{config}:2"])
        config.write_text("[agent]\ngamma = 7\nn_step = 0\n")
        self.start_refused({}, config, says=["agent.gamma", "agent.n_step"], lines=2)

    def test_folder(self):
        self.trained("run", {"train.steps": 20, "train.epoch_steps": 20})
        run = self.run_in("run")
        before = run.files()
        self.refused("train", "--out", run.path, says=[str(run.path), "not empty"])
        self.assertEqual(run.files(), before)
        self.refused("train", "--resume", says=["--out"])
        self.refused("train", "--resume", "--out", self.folder / "none", says=["config.toml"])
        self.assertFalse((self.folder / "none").exists())
        self.refused("train", "--resume", "--out", run.path, "--set", "agent.gamma=0.5", says=["agent.gamma"])
        self.refused("train", "--resume", "--out", run.path, "--seed", "2", says=["run.seed"])
        run.resume(options=["--set", "train.steps=20", "--seed", "1"])  # what it was started with does no harm
        file = self.folder / "file"
        file.write_text("")
        # What a start that was killed before config.toml leaves is no run.
        killed = self.run_in("killed")
        killed.checkpoints.mkdir(parents=True)
        (killed.path / "vulpes.log").write_text("info: started\n")
        (killed.path / "config.toml.tmp").write_text("[ru")
        self.refused("train", "--resume", "--out", killed.path, says=["config.toml", "--resume"])
        killed.train(SHORT)
        self.assertTrue((killed.path / "summary.json").exists())
        self.refused("train", "--out", file / "run", code=FAILED, says=[str(file)])


class Data(ErrorTest):
    def test_bad_values(self):
        for name, change, says in (
            ("nan", spoil(2, 4, "nan"), ["row 2", "close"]),
            ("text", spoil(50, 4, "abc"), ["51", "close", "abc"]),
            ("negative", spoil(3, 1, "-1"), ["row 3", "open"]),
            ("order", spoil(7, 0, "1600000000"), ["time"]),
            ("volume", spoil(4, 5, "-2"), ["row 4", "volume"]),
            ("jump", lambda i, f: [f[0], *["1e30"] * 4, f[5]] if i == 9 else f, ["row 9", "close", "1e+30", "100-fold"]),
        ):
            with self.subTest(name):
                path = bars_csv(self.folder / f"{name}.csv", 4000, change)
                self.refused("data", "check", path, says=[str(path), *says])
                self.start_refused({}, "--data", path, says=[str(path), *says])

    def test_too_short(self):
        short = bars_csv(self.folder / "short.csv", 150)
        self.start_refused({}, "--data", short, says=["150 bars are too few", "are needed"])
        self.start_refused({"folds.kind": "rolling", "folds.count": 3}, "--data", short, says=["are needed"])
        one = bars_csv(self.folder / "one.csv", 1)
        self.start_refused({}, "--data", one, says=["1 bar"])
        # The number that the message asks for is enough, one fewer is not.
        needed = int(re.search(r"(\d+) are needed", call("train", "--out", self.folder / "x", "--data", short,
                                                          *set_options(TINY)).stderr).group(1))  # fmt: skip
        fewer = bars_csv(self.folder / "fewer.csv", needed - 1)
        self.start_refused({}, "--data", fewer, says=[f"{needed} are needed"])
        enough = bars_csv(self.folder / "enough.csv", needed)
        run = self.trained("enough", {"train.steps": 20, "train.epoch_steps": 20}, "--data", enough)
        self.assertGreater(run.summary()["test"]["bars"], 0)

    # cases.md: 30-minute bars, 24 h, no weekends: 12,096 a year; 15-minute bars of a 6.5 h session: 6,552; printed.
    def test_bars_a_year_are_printed(self):
        monday = 1_572_825_600
        for a_year, a_day, seconds, open_at in ((12096, 48, 1800, 0), (6552, 26, 900, 52200)):

            def at(row, fields, a_day=a_day, seconds=seconds, open_at=open_at):
                day, bar = divmod(row - 1, a_day)
                return [str(monday + (day // 5 * 7 + day % 5) * 86400 + open_at + bar * seconds), *fields[1:]]

            path = bars_csv(self.folder / f"{a_year}.csv", 20 * a_day, at)
            self.assertIn(f"  {a_year} bars a year\n", call("data", "check", path, code=DONE).stdout)

    def test_bars_longer_than_a_day(self):
        first = datetime.date(2010, 1, 1)
        days = [first + datetime.timedelta(d) for d in range(3652)]
        for dates, a_year in (
            ([d for d in days if d.day == 1], 12),
            ([d for d in days if d.day == 1 and d.month in (1, 4, 7, 10)], 4),
            ([d for d in days if d.weekday() == 0], 52),
            ([d for d in days if d.weekday() < 5], 252),
            (days, 365),
        ):
            path = dated_csv(self.folder / f"{a_year}.csv", dates)
            self.assertIn(f"  {a_year} bars a year\n", call("data", "check", path, code=DONE).stdout)

    def test_gaps_and_closures_are_explained(self):
        hourly = lambda row, fields: [str(int(fields[0]) + (25200 if row > 700 else 0)), *fields[1:]]  # noqa: E731
        text = call("data", "check", bars_csv(self.folder / "gap.csv", 1000, hourly), code=DONE).stdout
        self.assertIn("1000 bars of 3600 s; 1 gap (7 bars missing), 0 closures", text)
        self.assertIn("    7 bars missing between 2020-10-12T15:26:40Z and 2020-10-12T23:26:40Z\n", text)
        for words in ("A gap is missing data", "A closure is a regular pause", "enough for a training"):
            self.assertIn(words, text)
        usable, warm_up = map(int, re.search(r"(\d+) bars can be traded: features need (\d+) bars", text).groups())
        self.assertEqual(usable, 1000 - 2 * warm_up)
        text = call("data", "check", bars_csv(self.folder / "few.csv", 150), code=DONE).stdout
        self.assertRegex(text, r"not enough .*150 bars are too few .* \d+ are needed")

    def test_constant_price(self):
        flat = bars_csv(self.folder / "flat.csv", 3000, lambda i, f: [f[0], "100", "100", "100", "100", "1"])
        self.start_refused({}, "--data", flat, says=["never changes"])

    def test_evaluation_on_other_columns(self):
        settings = {"train.steps": 20, "train.epoch_steps": 20}
        run = self.trained("run", settings, "--data", bars_csv(self.folder / "plain.csv", 3000))
        more = bars_csv(self.folder / "more.csv", 3000, columns=["sentiment"])
        out = self.folder / "out"
        self.refused("evaluate", run.best(), "--data", more, "--out", out, says=[str(more), "features"])
        self.assertFalse(out.exists())
        short = bars_csv(self.folder / "short.csv", 60)
        self.refused("evaluate", run.best(), "--data", short, "--out", out, says=[str(short)])
        self.assertFalse(out.exists())


class Evaluation(ErrorTest):
    def test_a_warning_of_bars_that_the_policy_knows_or_of_another_length(self):
        data = bars_csv(self.folder / "hourly.csv", 3000)
        run = self.trained("run", SHORT, "--data", data)

        def warnings(path):
            result = call("evaluate", run.best(), "--data", path, code=DONE)
            return [line for line in result.stderr.splitlines() if line.startswith("warning: ")]

        known, length = "trained and chosen on", "trained on bars of 3600 s"
        self.assertEqual([known in w for w in warnings(data)], [True])
        header, *lines = data.read_text().splitlines()
        train = run.summary()["folds"][0]["ranges"]["train"]
        end = int(datetime.datetime.fromisoformat(train["last"].replace("Z", "+00:00")).timestamp())
        inside = [line for line in lines if int(line.split(",")[0]) <= end]
        part = self.folder / "part.csv"
        part.write_text("\n".join([header, *inside[-500:]]) + "\n")
        self.assertEqual([known in w for w in warnings(part)], [True])
        later = bars_csv(self.folder / "later.csv", 600, lambda i, f: [str(int(f[0]) + 3000 * 3600), *f[1:]])
        self.assertEqual(warnings(later), [])
        other = bars_csv(self.folder / "other.csv", 600, lambda i, f: [f[0], *[str(float(x) + 7) for x in f[1:5]], f[5]])
        self.assertEqual(warnings(other), [])  # another market at the same time
        minutes = bars_csv(self.folder / "minutes.csv", 600, lambda i, f: [str(2_000_000_000 + 60 * i), *f[1:]])
        self.assertEqual([length in w for w in warnings(minutes)], [True])
        self.assertEqual([w for w in call("evaluate", run.best(), code=DONE).stderr.splitlines() if "warning" in w], [])

    def test_results_are_not_overwritten_unasked(self):
        run, out = self.trained("run", SHORT), self.folder / "out"
        command = ["evaluate", run.best(), "--out", out]
        call(*command, code=DONE)
        (out / "notes.txt").write_text("mine")
        (out / "decisions.csv").write_text("old")
        self.refused(*command, says=[str(out), "summary.json", "--force"])
        self.assertEqual((out / "decisions.csv").read_text(), "old")
        call(*command, "--force", code=DONE)
        self.assertNotEqual((out / "decisions.csv").read_text(), "old")
        self.assertEqual((out / "notes.txt").read_text(), "mine")
        before = digest(run.path / "summary.json")
        self.refused("evaluate", run.best(), "--out", run.path, "--force", says=[str(run.path), "run's folder"])
        self.assertEqual(digest(run.path / "summary.json"), before)

    def test_another_device(self):
        run = self.trained("run", SHORT)
        result = [call("evaluate", run.best(), "--device", d, code=DONE).stdout for d in ("default", "serial")]
        self.assertEqual(result[0].splitlines()[0], result[1].splitlines()[0])
        self.refused("evaluate", run.best(), "--device", "tpu", says=["tpu"])


class Results(ErrorTest):
    def test_table_log_and_ranges(self):
        run = self.run_in("run")
        printed = run.train({**SHORT, "synthetic.test_bars": 2048}).stdout
        summary = run.summary()
        test = summary["test"]
        table = printed[printed.index("Test on ") : printed.index("\nResults are in")]
        self.assertIn(f"Test on {test['bars']} bars", table)
        self.assertIn("basis points", table)
        for name, j in test["comparisons"].items():
            self.assertRegex(table, rf"(?m)^  {re.escape(name)} +{1e4 * j['growth_per_bar']:.3f} .*[a-z]$")
        self.assertIn("+- one standard error", table)
        self.assertNotIn("%", next(line for line in table.splitlines() if line.startswith("  z-score")))
        # The same lines are in the log, but not twice on the terminal.
        logged = [line.split(" info: ", 1)[1] for line in (run.path / "vulpes.log").read_text().splitlines() if " info: " in line]  # fmt: skip
        for line in table.splitlines():
            self.assertIn(line, logged)
        ranges = summary["folds"][0]["ranges"]
        self.assertEqual(ranges["train"]["bars"], TINY["synthetic.train_bars"])
        self.assertEqual(ranges["validation"]["bars"], TINY["synthetic.validation_bars"])
        self.assertEqual([t["bars"] for t in ranges["test"]], [2048] * 2)

    def test_ranges_of_folds_are_dates_in_order(self):
        data = bars_csv(self.folder / "bars.csv", 3000)
        settings = {**SHORT, "folds.kind": "rolling", "folds.count": 2}
        summary = self.trained("run", settings, "--data", data).summary()
        with open(data, newline="") as file:
            times = [datetime.datetime.fromtimestamp(int(row["time"]), datetime.timezone.utc) for row in csv.DictReader(file)]
        for fold in summary["folds"]:
            ranges = fold["ranges"]
            train, validation, (test,) = ranges["train"], ranges["validation"], ranges["test"]
            for r in (train, validation, test):
                first, last = (datetime.datetime.fromisoformat(r[k].replace("Z", "+00:00")) for k in ("first", "last"))
                self.assertEqual(times.index(last) - times.index(first) + 1, r["bars"])
            self.assertLess(train["last"], validation["first"])
            self.assertLess(validation["last"], test["first"])
        self.assertEqual(summary["folds"][-1]["ranges"]["test"][0]["last"], times[-1].isoformat().replace("+00:00", "Z"))

    def test_a_finished_run_says_so(self):
        run = self.run_in("run")
        table = run.train(SHORT).stdout
        before = {name: (run.path / name).read_bytes() for name in run.files() if (run.path / name).is_file()}
        result = run.resume()
        self.assertIn("already finished", result.stderr)
        self.assertEqual(result.stdout.strip(), table.strip())
        self.assertEqual({n: (run.path / n).read_bytes() for n in run.files() if (run.path / n).is_file()}, before)

    def test_a_training_without_c51_is_warned_of(self):
        run = self.run_in("run")
        self.assertIn("agent.warmup_steps = 100: the distributional (C51) loss is never used", run.train(SHORT).stderr)
        run = self.run_in("enough")
        self.assertNotIn("warning", run.train({**SHORT, "agent.warmup_steps": 10}).stderr)


class Info(ErrorTest):
    def test_what_matters_of_a_checkpoint(self):
        run = self.trained("run", {**SHORT, "agent.gamma": 0.5}, "--seed", "7")
        text = call("info", run.best(), code=DONE).stdout
        self.assertLess(len(text.splitlines()), 40)
        for words in ("step 20, fold 1", "seed 7", "  agent.gamma = 0.5\n", "  network.hidden1 = 16\n", "parameter hash"):
            self.assertIn(words, text)
        self.assertNotIn("optimiser.learning_rate", text)
        self.assertEqual(call("info", run.best(), "--config", code=DONE).stdout, (run.path / "config.toml").read_text())
        data = bars_csv(self.folder / "bars.csv", 3000)
        text = call("info", self.trained("file", SHORT, "--data", data).best(), code=DONE).stdout
        self.assertIn(f"trained on {data}", text)
        self.assertRegex(text, r"bars of 3600 s; training and validation from 2020-09-\S+Z to 2020-12-\S+Z\n")

    def test_estimate_knows_the_size_without_the_market(self):
        data = bars_csv(self.folder / "bars.csv", 3000, columns=["sentiment"])
        rolling = {"folds.kind": "rolling", "folds.count": 2}
        for name, settings, options in (("paths", {}, []), ("folds", rolling, []), ("file", {}, ["--data", data])):
            log = self.run_in(name).train({**SHORT, **settings}, *options).stderr
            size = re.search(r"(\d+ bars, \d+ features)", log).group(1)
            estimate = call("info", "--estimate", *set_options({**TINY, **settings}), *options, code=DONE).stdout
            self.assertIn(f"({size})", estimate)
            self.assertIn(f"({size})", call("info", "--estimate", self.run_in(name).best(), code=DONE).stdout)
        config = self.run_in("paths").path / "config.toml"
        self.assertIn("bars", call("info", "--estimate", config, code=DONE).stdout)
        self.refused("info", config, says=["--estimate"])
        began = time.monotonic()  # 1e9 bars would be over 100 GB
        call("info", "--estimate", "--set", "synthetic.train_bars=1000000000", code=DONE)
        self.assertLess(time.monotonic() - began, 10)


class Step(ErrorTest):
    def test_a_file_that_is_no_state(self):
        run, out = self.trained("run", SHORT), self.folder / "out.h5"
        self.refused("step", "--state", run.best(), "--out", out, says=[str(run.best()), "docs/step-format.md"])
        call("evaluate", run.best(), "--out", self.folder / "e", code=DONE)
        other = self.folder / "e" / "decisions.h5"
        self.refused("step", "--state", other, "--out", out, says=[str(other), "state_width", "docs/step-format.md"])
        text = self.folder / "text"
        text.write_text("no HDF5")
        self.refused("step", "--state", text, "--out", out, says=[str(text)])
        self.assertFalse(out.exists())


class Example(ErrorTest):
    def example(self, *arguments, isolated=False):
        command = [sys.executable, *(["-S", "-E"] if isolated else []), str(EXAMPLE), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    def test_help_and_a_missing_package(self):
        for isolated in (False, True):
            result = self.example("--help", isolated=isolated)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertIn("decisions.h5", result.stdout)
        result = self.example("a.h5", "b.h5", isolated=True)  # without site-packages
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        self.assertIn("scripts/python-deps", result.stderr)


class Checkpoints(ErrorTest):
    def test_damaged_and_foreign_files(self):
        run = self.trained("run", {"train.steps": 20, "train.epoch_steps": 20})
        whole = run.best().read_bytes()
        damaged = self.folder / "damaged.h5"
        for content in (b"", b"text", whole[: len(whole) // 2], whole[:-1], whole + b"x", b"\0" * len(whole)):
            damaged.write_bytes(content)
            for command in ("info", "evaluate"):
                self.refused(command, damaged, code=FAILED, says=[str(damaged)])
        # A file of the same kind, but no policy.
        call("evaluate", run.best(), "--out", self.folder / "out", code=DONE)
        self.refused("info", self.folder / "out" / "decisions.h5", code=FAILED, says=["not a Vulpes policy"])

    def test_resume_of_a_policy_without_training_state(self):
        run = self.trained("run", {"train.steps": 20, "train.epoch_steps": 20})
        (run.path / "summary.json").unlink()  # a finished run is not resumed
        for _, _, path in run.full_checkpoints():
            path.unlink()
        shutil.copy(run.best(), run.checkpoints / "fold-1-step-0000000020.h5")
        self.refused("train", "--resume", "--out", run.path, code=FAILED, says=["without training state"])

    def test_resume_with_other_data(self):
        data = bars_csv(self.folder / "bars.csv", 3000)
        run = self.trained("run", {"train.steps": 20, "train.epoch_steps": 20}, "--data", data)
        (run.path / "summary.json").unlink()
        bars_csv(data, 3100)
        self.refused("train", "--resume", "--out", run.path, says=["data"])
        data.unlink()
        self.refused("train", "--resume", "--out", run.path, says=[str(data)])

    def test_a_run_folder_is_held_by_one_process(self):
        run = Run(self.folder / "run")
        process = run.start({"train.steps": 100000, "train.epoch_steps": 100000})
        try:
            deadline = time.monotonic() + 30
            while process.poll() is None and time.monotonic() < deadline and not list(run.checkpoints.glob("*.h5")):
                time.sleep(0.005)
            self.assertIsNone(process.poll())
            self.refused("train", "--resume", "--out", run.path, says=["in use", str(process.pid)])
        finally:
            process.kill()
            process.communicate()


if __name__ == "__main__":
    main()
