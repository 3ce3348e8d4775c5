"""Errors of the command line: exit codes, one-line messages that say what, where and what to do, nothing left behind."""

import math
import re
import shutil
import time
from pathlib import Path

from vulpes_run import BAD_USAGE, DONE, FAILED, TINY, FolderTest, Run, call, main, set_options


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
        self.refused("data", "check", missing, says=[str(missing)])
        self.start_refused({}, "--data", missing, says=[str(missing)])

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
        self.refused("train", "--out", file / "run", code=FAILED, says=[str(file)])


class Data(ErrorTest):
    def test_bad_values(self):
        for name, change, says in (
            ("nan", spoil(2, 4, "nan"), ["row 2", "close"]),
            ("text", spoil(50, 4, "abc"), ["51", "close", "abc"]),
            ("negative", spoil(3, 1, "-1"), ["row 3", "open"]),
            ("order", spoil(7, 0, "1600000000"), ["time"]),
            ("volume", spoil(4, 5, "-2"), ["row 4", "volume"]),
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
        for _, _, path in run.full_checkpoints():
            path.unlink()
        shutil.copy(run.best(), run.checkpoints / "fold-1-step-0000000020.h5")
        self.refused("train", "--resume", "--out", run.path, code=FAILED, says=["without training state"])

    def test_resume_with_other_data(self):
        data = bars_csv(self.folder / "bars.csv", 3000)
        run = self.trained("run", {"train.steps": 20, "train.epoch_steps": 20}, "--data", data)
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
