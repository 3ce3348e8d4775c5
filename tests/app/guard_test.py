"""The training guard through the whole program: injected faults, rollbacks, the stop."""

from vulpes_run import BAD_USAGE, DONE, FAILED, FolderTest, call, main

FAULTS = {"debug.inject": "true", "guard.patience": 5, "guard.max_rollbacks": 2, "guard.snapshot_steps": 20}


class Guard(FolderTest):
    def test_one_fault_is_one_skipped_step(self):
        for fault in ({"inject.nan_step": 250}, {"inject.grad_spike_step": 250, "guard.spike_factor": 10,
                                                 "guard.spike_floor": 1, "inject.grad_spike_factor": 1e6}):  # fmt: skip
            name = next(iter(fault))
            rows = self.trained(name, {**FAULTS, **fault}).metrics()
            self.assertEqual([float(r["skipped_steps"]) for r in rows], [0, 0, 1, 0, 0, 0, 0, 0], name)
            self.assertEqual(float(rows[-1]["updates_accepted"]), 799)
            self.assertEqual(float(rows[-1]["rollbacks"]), 0)

    def test_a_passing_fault_rolls_back_and_training_goes_on(self):
        rows = self.trained("run", {**FAULTS, "inject.nan_step": 250, "inject.nan_steps": 7}).metrics()
        self.assertEqual(float(rows[2]["skipped_steps"]), 7)
        self.assertEqual(float(rows[2]["rollbacks"]), 1)
        self.assertEqual(float(rows[-1]["skipped_steps"]), 0)

    def test_a_lasting_fault_stops_with_the_place_and_the_last_good_checkpoint(self):
        run = self.run_in("run")
        result = run.train({**FAULTS, "inject.nan_step": 250, "inject.nan_steps": 100000}, code=FAILED)
        last = result.stderr.strip().splitlines()[-1]
        # Two rollbacks and the stop, five steps each.
        for part in ("guard stopped training", "step 264", "NaN or Inf", "2 rollbacks", "fold-1-step-0000000200.h5",
                     "fold-1-stopped.h5"):  # fmt: skip
            self.assertIn(part, last)
        self.assertFalse((run.path / "summary.json").exists())
        self.assertEqual(run.step(), 200)
        call("info", run.newest(), code=DONE)
        call("evaluate", run.newest(), "--out", self.folder / "evaluated", code=DONE)
        # Whoever goes on meets the same fault at the same step again.
        self.assertIn("step 264", run.resume(code=FAILED).stderr)

    def test_faults_are_refused_unless_they_are_meant(self):
        result = self.run_in("run").train({"inject.nan_step": 3}, code=BAD_USAGE)
        self.assertIn("debug.inject", result.stderr)


if __name__ == "__main__":
    main()
