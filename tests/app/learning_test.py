"""The agent learns the synthetic market: growth on unseen bars over that of the best price-only policy.

    learning_test.py VULPES smoke      one seed, 4,000 steps
    learning_test.py VULPES slow       five seeds, default settings
"""

import os
import sys
import time

from vulpes_run import DONE, FolderTest, call, main

CASE = sys.argv.pop(2)


class Learning(FolderTest):
    def learn(self, seeds, settings, least, largest_error, seconds):
        print(f"\n{'seed':>4} {'fraction':>9} {'error':>7} {'market':>8} {'agent':>8} {'seconds':>8}   (bp a bar)")
        failures = []
        for seed in seeds:
            run = self.run_in(f"seed_{seed}")
            began = time.monotonic()
            # All cores: the time limit is that of the program as it is used.
            call("train", "--out", run.path, "--seed", seed, *settings, code=DONE, timeout=1200,
                 env={"OMP_NUM_THREADS": str(os.cpu_count())})  # fmt: skip
            took = time.monotonic() - began
            test = run.summary()["test"]
            fraction, error = test["optimal_fraction"], test["optimal_fraction_standard_error"]
            reference = test["comparisons"]["reference (price only)"]["growth_per_bar"]
            print(f"{seed:>4} {fraction:>9.3f} {error:>7.4f} {1e4 * reference:>8.3f} {1e4 * test['growth_per_bar']:>8.3f} "
                  f"{took:>8.1f}", flush=True)  # fmt: skip
            if fraction < least:
                failures.append(f"seed {seed}: fraction {fraction:.3f} is below {least}")
            if not error < largest_error:
                failures.append(f"seed {seed}: standard error {error:.4f} is not below {largest_error}")
            if took > seconds:
                failures.append(f"seed {seed}: {took:.0f} s, longer than {seconds} s")
        self.assertEqual(failures, [])

    def test_learns(self):
        if CASE == "smoke":
            self.learn([1], ["--set", "train.steps=4000"], 0.80, 0.02, 180)
        else:
            self.learn([1, 2, 3, 4, 5], [], 0.90, 0.01, 180)


if __name__ == "__main__":
    main()
