"""A run that was stopped and resumed equals the uninterrupted one, bit for bit."""

import shutil
import unittest

from vulpes_run import (DONE, EVERYTHING, INTERRUPTED, OTHER_PATHS, SIGNALS, FolderTest, digest, interrupt_after, main,
                        parameter_hash, signal_process, touch_stop)  # fmt: skip


class Resume(FolderTest):
    def stopped(self, name, settings, how, rows=2):
        """A run that was stopped between two validations."""
        run = self.run_in(name)
        code = interrupt_after(run, run.start(settings), rows, how)
        self.assertEqual(code, INTERRUPTED)
        step = run.step()
        self.assertTrue(100 * rows <= step < 800, f"stopped at step {step}: not within the run")
        self.assertFalse((run.path / "summary.json").exists())
        return run

    def equals_the_uninterrupted_run(self, settings, how):
        whole = self.trained("whole", settings)
        run = self.stopped("stopped", settings, how)
        step = run.step()
        (run.path / "stop").unlink(missing_ok=True)
        result = run.resume()
        self.assertIn(f"resumed at step {step}", result.stderr)
        self.assert_same_result(whole, run)
        print(f"stopped at step {step} of 800, resumed: parameters {parameter_hash(run.newest())} as uninterrupted")

    # cases.md: 400 steps equal 200 + save + a new process + load + 200, bit for bit.
    def test_200_steps_and_200_after_a_load_equal_400(self):
        for name, settings in (("plain", {}), ("other", OTHER_PATHS)):
            whole = self.trained(name, {**settings, "train.steps": 400, "train.keep": 5})
            run = self.run_in(f"{name}_resumed")
            shutil.copytree(whole.path, run.path)
            (run.path / "summary.json").unlink()
            for _, step, path in run.full_checkpoints():
                if step > 200:
                    path.unlink()
            self.assertIn("resumed at step 200 ", run.resume().stderr)
            self.assert_same_result(whole, run)

    def test_after_sigusr1(self):
        self.equals_the_uninterrupted_run({}, signal_process(SIGNALS["SIGUSR1"]))

    def test_after_sigterm_with_n_step_spectral_norm_and_softmax(self):
        self.equals_the_uninterrupted_run(OTHER_PATHS, signal_process(SIGNALS["SIGTERM"]))

    def test_after_a_stop_file_with_per_branch_targets_and_online_evaluation(self):
        self.equals_the_uninterrupted_run(
            {"agent.target": "per_branch", "agent.double_dqn": "false", "train.evaluate_with": "online",
             "train.checkpoint_epochs": 2, "train.updates": 7, "train.collect_steps": 3}, touch_stop)  # fmt: skip

    def test_with_every_part_on(self):
        self.equals_the_uninterrupted_run(EVERYTHING, signal_process(SIGNALS["SIGTERM"]))

    def test_several_stops_at_one_step(self):
        whole = self.trained("whole")
        run = self.stopped("stopped", {}, touch_stop)
        before = digest(run.newest())
        # The stop file is still there: the run stops again, where it was.
        run.resume(code=INTERRUPTED)
        self.assertEqual(digest(run.newest()), before)
        (run.path / "stop").unlink()
        self.assertEqual(interrupt_after(run, run.start(), 2, signal_process(SIGNALS["SIGINT"])), INTERRUPTED)
        run.resume()
        self.assert_same_result(whole, run)

    def test_a_finished_run_is_left_as_it_is(self):
        run = self.trained("run")
        before, metrics = digest(run.newest()), (run.path / "metrics.csv").read_bytes()
        test = run.summary()["test"]
        run.resume()
        self.assertEqual(digest(run.newest()), before)
        self.assertEqual((run.path / "metrics.csv").read_bytes(), metrics)
        self.assertEqual(run.summary()["test"], test)

    def test_patience_counts_over_a_resume(self):
        settings = {"train.patience": 5, "optimiser.learning_rate": 0}  # nothing gets better after the first validation
        whole = self.trained("whole", settings)
        # One that is best, five that are not; the last of them is known when the epoch after it has been trained.
        self.assertEqual(len(whole.metrics()), 7)
        run = self.stopped("stopped", settings, signal_process(SIGNALS["SIGUSR1"]))
        run.resume()
        self.assert_same_result(whole, run)

    def test_a_stop_in_the_second_fold(self):
        settings = {"folds.kind": "rolling", "folds.count": 2, "train.steps": 400}
        whole = self.trained("whole", settings)
        run = self.run_in("stopped")
        code = interrupt_after(run, run.start(settings), 6, signal_process(SIGNALS["SIGUSR1"]))
        self.assertEqual(code, INTERRUPTED)
        self.assertEqual(run.full_checkpoints()[-1][0], 2)
        run.resume()
        self.assert_same_result(whole, run)
        self.assertEqual(digest(whole.best(2)), digest(run.best(2)))


class DamagedCheckpoint(FolderTest):
    # cases.md: the newest checkpoint truncated at any byte: the loader names it, falls back to the previous, exit 0.
    def test_truncated_newest_checkpoint(self):
        whole = self.trained("whole")
        final = digest(whole.newest())
        run = self.run_in("run")
        code = interrupt_after(run, run.start({}), 3, signal_process(SIGNALS["SIGUSR1"]))
        self.assertEqual(code, INTERRUPTED)
        kept = [path for _, _, path in run.full_checkpoints()]
        self.assertGreaterEqual(len(kept), 2)
        size = kept[-1].stat().st_size
        for position in (0, 1, 511, 512, 4096, size // 2, size - 1):
            with self.subTest(bytes=position, size=size):
                copy = self.run_in(f"cut_{position}")
                shutil.copytree(run.path, copy.path)
                with open(copy.newest(), "r+b") as file:
                    file.truncate(position)
                result = copy.resume(code=DONE)
                self.assertIn(kept[-1].name, result.stderr)
                self.assertIn("falling back", result.stderr)
                self.assertIn(f"from {copy.checkpoints / kept[-2].name}", result.stderr)
                self.assertEqual(digest(copy.newest()), final)
                self.assertEqual(copy.metrics(), whole.metrics())
                shutil.rmtree(copy.path)

    def test_one_changed_byte(self):
        whole = self.trained("whole")
        run = self.run_in("run")
        interrupt_after(run, run.start({}), 3, signal_process(SIGNALS["SIGUSR1"]))
        with open(run.newest(), "r+b") as file:
            file.seek(run.newest().stat().st_size // 3)
            byte = file.read(1)
            file.seek(-1, 1)
            file.write(bytes([byte[0] ^ 1]))
        self.assertIn("falling back", run.resume().stderr)
        self.assert_same_result(whole, run)


if __name__ == "__main__":
    unittest.TestCase.maxDiff = None
    main()
