"""bench_step --serve and the scripts that time it in turns with a peer.

    peers_test.py BENCH_STEP
"""

import importlib.util
import json
import subprocess
import sys
import tempfile
import time
import unittest
from importlib.machinery import SourceFileLoader
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BENCH_STEP = sys.argv.pop(1)
CONFIG = "demo_everything"


def module(path):
    loader = SourceFileLoader(path.name.replace("-", "_").split(".")[0], str(path))
    made = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(made)
    return made


def serve(text, *arguments):
    return subprocess.run(
        [BENCH_STEP, "--serve", *arguments], input=text, capture_output=True, text=True, timeout=120, check=False
    )


class ServeTest(unittest.TestCase):
    def test_answers_each_request_with_one_line(self):
        began = time.monotonic()
        done = serve("run 4\nrun 40\nquit\nrun 7\n", CONFIG)
        passed = 1e3 * (time.monotonic() - began)
        self.assertEqual(done.returncode, 0, done.stderr)
        answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        self.assertEqual([a["steps"] for a in answers], [4, 40])
        for a in answers:
            self.assertGreater(a["milliseconds"], 0.01)
        self.assertLess(sum(a["steps"] * a["milliseconds"] for a in answers), passed)
        self.assertIn(f"ready {CONFIG}", done.stdout)

    def test_ends_with_its_input(self):
        self.assertEqual(serve("run 1\n", CONFIG).returncode, 0)

    def test_refuses_what_it_does_not_know(self):
        for text in ("run\n", "run 0\n", "run -3\n", "run 2 3\n", "walk 2\n"):
            done = serve(text, CONFIG)
            self.assertEqual(done.returncode, 2, text)
            self.assertIn(text.strip(), done.stderr)
        unknown = serve("", "nothing")
        self.assertEqual(unknown.returncode, 2)
        self.assertIn(CONFIG, unknown.stderr)
        self.assertEqual(serve("").returncode, 2)


class InterleaveTest(unittest.TestCase):
    script = ROOT / "bench" / "peers" / "interleave.py"

    def run_without_torch(self, command, code=0):
        """With an empty module path for torch: only ours runs, and the file says so."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "out.json"
            (Path(folder) / "torch.py").write_text("raise ImportError('no torch here')\n")
            done = subprocess.run(
                [sys.executable, self.script, "--config", "demo", "--steps", "3", "--rounds", "4", "--json", file, *command],
                env={"PYTHONPATH": folder, "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, timeout=120, check=False,
            )  # fmt: skip
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
            return json.loads(file.read_text())

    def test_runs_ours_without_torch(self):
        result = self.run_without_torch(["--", BENCH_STEP, "--serve", CONFIG])
        self.assertEqual(len(result["ours"]["times_ms"]), 4)
        self.assertTrue(any("no torch here" in x for x in result["left_out"]), result["left_out"])
        self.assertNotIn("ratio", result)

    def test_says_that_ours_did_not_start(self):
        result = self.run_without_torch(["--", BENCH_STEP, "--serve", "nothing"], code=1)
        self.assertTrue(any("exit code 2" in x for x in result["left_out"]), result["left_out"])

    def test_ratio_has_its_interval(self):
        ratio = module(self.script).ratio
        exact = ratio([2.0] * 10, [5.0] * 10)
        self.assertEqual((exact["peer_over_ours"], exact["low"], exact["high"]), (2.5, 2.5, 2.5))
        noisy = ratio([1.0, 1.1, 0.9, 1.0, 1.2, 0.8], [2.0, 1.8, 2.2, 2.0, 1.6, 2.4])
        self.assertTrue(1.3 < noisy["low"] < 2.0 < noisy["high"] < 3.0, noisy)


class FloorTest(unittest.TestCase):
    compare = module(ROOT / "scripts" / "compare-peers")

    def test_bytes_of_the_parts(self):
        """Figures calculated by hand for `large`: 5.79 M weights, 24 us of residual additions a forward at 4.25 TB/s."""
        count = self.compare.compulsory_bytes("large")
        self.assertAlmostEqual(count["spectral norm"] / 12, 5.79e6, delta=0.01e6)
        self.assertAlmostEqual(count["residual additions"] / 4 / 4.25e12, 23.7e-6, delta=0.1e-6)
        self.assertAlmostEqual(count["optimiser"] / 4.25e12, 54.7e-6, delta=1e-6)

    def test_products_by_their_own_rates(self):
        product = {"flops": 2e6, "fp32_flops_a_second": 1e9, "tf32_flops_a_second": 4e9}
        ceilings = {"copy_bytes_a_second": 1e12, "products": [
            {"name": "y", "forward": True, "times": 3, **product}, {"name": "dw", "forward": False, "times": 1, **product}]}  # fmt: skip
        parts, missing = self.compare.floor("small", ceilings, "mixed")
        self.assertAlmostEqual(parts["forward products"], 1.5)
        self.assertAlmostEqual(parts["backward products"], 2.0)
        self.assertEqual(missing, [])
        ceilings["products"][1]["fp32_flops_a_second"] = None
        self.assertEqual(self.compare.floor("small", ceilings, "mixed")[1], ["dw"])


if __name__ == "__main__":
    unittest.main()
