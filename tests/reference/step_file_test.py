#!/usr/bin/env python3
"""`vulpes step`: what it refuses, that looking changes nothing, and that a checkpoint's step is the run's own.

    step_file_test.py VULPES

Exit status 77: Python packages are missing.
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

import check_step
import h5py
import numpy as np
from cases import PARTS, make_case
from check_step import read_result, run_vulpes

VULPES = sys.argv.pop(1)
TRACED = {"batch/goals", "batch/donors", "batch/relabelled"}  # the last one is training's own with hindsight

TINY = {
    "network.hidden1": 16, "network.hidden2": 16, "network.head_hidden": 8, "network.atoms": 11,
    "train.steps": 4, "train.epoch_steps": 1, "train.updates": 1, "train.batch": 32, "train.keep": 9,
    "collect.envs": 16, "collect.window": 16, "replay.rows": 512, "replay.learning_starts": 256,
    "synthetic.train_bars": 2048, "synthetic.validation_bars": 512, "synthetic.test_bars": 512,
    "synthetic.test_paths": 1, "synthetic.optimum_draws": 256, "synthetic.optimum_points": 5,
}  # fmt: skip
EVERY_PART = {
    "agent.n_step": 3, "agent.warmup_steps": 1, "agent.blend_steps": 1, "agent.scale_trunk_gradient": "true",
    "network.survival": 0.5, "optimiser.spectral_trunk": 2, "optimiser.spectral_output": 2,
    "reward.goal_bonus": 0.5, "hindsight.share": 0.5, "cql.weight": 0.1, "auxiliary.weight": 0.1,
    "diversity.weight": 0.1, "causal.every": 2, "causal.rows": 16, "pruning.sparsity": 0.5, "pruning.every": 1,
    "pruning.begin_fraction": 0, "pruning.end_fraction": 1, "guard.spike_factor": 10, "guard.patience": 2,
}  # fmt: skip


class StepFile(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="vulpes-step-file-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def call(self, *arguments):
        return subprocess.run([VULPES, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False)

    def refused(self, path, *says):
        out = self.folder / "refused.h5"
        result = self.call("step", "--state", path, "--out", out)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        for words in (str(path), *says):
            self.assertIn(words, result.stderr)
        self.assertFalse(out.exists())

    def test_broken_states(self):
        """Each change of a good state, and what the refusal names."""
        path = self.folder / "in.h5"
        common = [
            ("parameters/online/trunk.1.weight", lambda v: v[:, 1:], "trunk.1.weight"),
            ("parameters/online/trunk.1.weight", lambda v: v.astype(np.float64), "trunk.1.weight"),
            ("parameters/target/output.bias", lambda v: v * np.nan, "no finite"),
            ("optimiser/first_moment/hidden.bias", None, "first_moment/hidden.bias"),
            ("spectral/u/trunk.0.weight", lambda v: v[1:], "spectral/u/trunk.0.weight"),
            ("counters/adam_t", None, "counters/adam_t"),
            ("counters/iteration", lambda v: np.float32(v), "counters/iteration"),
            ("support/vmin", lambda v: np.nan * v, "support/vmin"),
            ("support/vmin", lambda v: v + 100, "support/vmin"),
            ("state_width", lambda v: v + np.int64(1), "state_width"),
            ("market/return_sd", None, "market/return_sd"),
            ("market/return_sd", lambda v: -v, "market/return_sd"),
            ("causal/groups", lambda v: v + np.int32(1), "causal/groups"),
            ("causal/groups", lambda v: v[1:], "causal/groups"),
            ("mask/trunk.0.weight", lambda v: v[1:], "mask/trunk.0.weight"),
        ]
        given = [
            ("batch/states", lambda v: v[:, 1:], "batch/states"),
            ("batch/next_states", lambda v: v[1:], "batch/next_states"),
            ("batch/rewards", lambda v: v[1:], "multiple of 16"),
            ("batch/rewards", lambda v: v * np.nan, "no finite"),
            ("batch/actions", lambda v: v + np.uint8(9), "batch/actions"),
            ("batch/next_returns", None, "batch/next_returns"),
            ("batch/weights", None, "batch/weights"),
        ]
        drawn = [
            ("replay/leaves", lambda v: 0 * v, "all 0"),
            ("replay/leaves", lambda v: 0 * v + np.uint32(1), "not all in the ring"),
            ("replay/leaves", lambda v: v[:, :1], "replay/"),
            ("replay/leaves", lambda v: v[:2], "agent.n_step"),
            ("replay/bar", lambda v: v + np.uint32(10**6), "replay/bar"),
            ("replay/action", lambda v: v + np.uint8(9), "replay/action"),
            ("replay/flags", lambda v: v + np.uint8(8), "replay/flags"),
            ("replay/goal", None, "replay/goal"),
            ("replay/after", lambda v: v[..., :3], "replay/after"),
            ("replay/before", lambda v: v * np.nan, "no finite"),
            ("market/close", lambda v: -v, "market/close"),
            ("market/close", lambda v: v[1:], "market/close"),
            ("market/features", lambda v: v[:, 9:], "market/features"),
            ("market/reward_scale", None, "market/reward_scale"),
        ]
        every = set(PARTS) - {"injected NaN", "injected spike"}
        for parts, changes in ((every - {"replay"}, common + given), (every, common + drawn)):
            case = make_case(1, 1, parts=parts)
            if not any(name.startswith("mask/") for name in case.state):
                case.state["mask/trunk.0.weight"] = np.zeros(
                    case.state["parameters/online/trunk.0.weight"].shape, np.uint8
                )
            run_vulpes(VULPES, self.folder, case, "serial")
            for name, change, says in changes:
                state = {k: v for k, v in case.state.items() if k != name}
                self.assertLess(len(state), len(case.state), name)
                if change:
                    state[name] = change(case.state[name])
                check_step.write_state(path, check_step.dataclasses.replace(case, state=state), "serial")
                with self.subTest(name, says=says):
                    self.refused(path, says)
            both = {
                **case.state,
                "batch/rewards": np.zeros(16, np.float32),
                "replay/goal": np.zeros((2, 2), np.float32),
            }
            check_step.write_state(path, check_step.dataclasses.replace(case, state=both), "serial")
            self.refused(path, "both 'batch' and 'replay'")

    def assert_same(self, one, other, left_out=frozenset()):
        self.assertEqual(set(one) ^ set(other), set(left_out))
        for name in set(one) & set(other):
            self.assertEqual(one[name].tobytes(), other[name].tobytes(), name)

    def test_a_trace_changes_nothing(self):
        for index in range(12):
            case = make_case(3, index)
            for device in ("serial", "default"):
                with self.subTest(case.name, device=device):
                    traced = run_vulpes(VULPES, self.folder, case, device)
                    plain = run_vulpes(VULPES, self.folder, case, device, "--no-trace")
                    own = {"batch/relabelled"} if "hindsight" in case.on else set()
                    self.assert_same(traced, plain, TRACED - own if case.drawn else set())

    def test_the_next_step_of_a_run(self):
        """From the checkpoint of step k the step leads to what the run has in that of step k + 1, bit for bit."""
        for settings in ({}, EVERY_PART):
            run = self.folder / f"run{len(settings)}"
            options = [part for item in {**TINY, **settings}.items() for part in ("--set", "{}={}".format(*item))]
            result = self.call("train", "--out", run, *options)
            self.assertEqual(result.returncode, 0, result.stderr)
            files = sorted((run / "checkpoints").glob("fold-1-step-*.h5"))
            self.assertEqual(len(files), 5)
            for before, after in zip(files, files[1:]):
                out = {}
                for name, more in {"traced": [], "plain": ["--no-trace"]}.items():
                    path = self.folder / "out.h5"
                    result = self.call("step", "--state", before, "--out", path, *more)
                    self.assertEqual(result.returncode, 0, result.stderr)
                    out[name] = read_result(path)
                self.assert_same(out["traced"], out["plain"], TRACED - ({"batch/relabelled"} if settings else set()))
                saved = read_result(after)
                same = {
                    f"training/{group}/{tensor}": f"{prefix}/{tensor}"
                    for group, prefix in (
                        ("online", "parameters/online"),
                        ("target", "parameters/target"),
                        ("first_moment", "optimiser/first_moment"),
                        ("second_moment", "optimiser/second_moment"),
                    )
                    for tensor in (n[len("training/online/") :] for n in saved if n.startswith("training/online/"))
                }
                self.assertGreater(len(same), 40)
                for checkpoint, traced in same.items():
                    self.assertEqual(saved[checkpoint].tobytes(), out["traced"][traced].tobytes(), traced)
                leaves = saved["training/replay/leaves"].view(np.uint32).reshape(-1)
                traced = out["traced"]["replay/leaves"].reshape(-1)
                self.assertEqual(leaves[: traced.size].tobytes(), traced.tobytes())
            refused = self.call("step", "--state", files[0], "--out", self.folder / "o.h5", "--set", "agent.gamma=0.5")
            self.assertEqual(refused.returncode, 2)
            self.assertIn("agent.gamma", refused.stderr)
            serial = self.call("step", "--state", files[0], "--out", self.folder / "o.h5", "--set", "run.device=serial")
            self.assertEqual(serial.returncode, 0, serial.stderr)

    def test_wrong_files(self):
        text = self.folder / "text"
        text.write_text("no HDF5")
        self.refused(text)
        empty = self.folder / "empty.h5"
        h5py.File(empty, "w").close()
        self.refused(empty, "state_width", "docs/step-format.md")
        with h5py.File(empty, "w") as f:
            f["state_width"] = np.int64(16)
        self.refused(empty, "neither 'batch' nor 'replay'")


if __name__ == "__main__":
    unittest.main()
