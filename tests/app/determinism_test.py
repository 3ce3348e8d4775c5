"""The same seed gives the same bits, whatever is logged and whichever folds run beside it."""

from vulpes_run import DONE, OTHER_PATHS, FolderTest, call, digest, main, parameter_hash, without


class Determinism(FolderTest):
    def test_two_runs_of_one_seed(self):
        self.assert_same_result(self.trained("a"), self.trained("b"))

    def test_two_runs_of_one_seed_with_other_paths(self):
        self.assert_same_result(self.trained("a", OTHER_PATHS), self.trained("b", OTHER_PATHS))

    def test_another_seed_differs(self):
        a, b = self.trained("a"), self.trained("b", {}, "--seed", "2")
        self.assertEqual(b.summary()["seed"], 2)
        self.assertNotEqual(parameter_hash(a.newest()), parameter_hash(b.newest()))
        self.assertNotEqual(a.metrics()[0]["loss"], b.metrics()[0]["loss"])

    def test_logging_changes_nothing(self):
        loud = self.trained("loud", top=["--log-level", "trace"])
        quiet = self.run_in("quiet")
        result = quiet.train({}, top=["--log-level", "off"])
        self.assertNotIn("info:", result.stderr)
        self.assert_same_result(loud, quiet)

    def test_serial_device(self):
        settings = {"run.device": "serial", "train.steps": 200}
        self.assert_same_result(self.trained("a", settings), self.trained("b", settings))


    def test_graphs_and_their_failures_change_nothing(self):
        """Whatever a step is launched as, and wherever recording it fails, the run is the same but for the log."""
        whole = self.trained("mega", {"train.steps": 200})
        ways = {"split": {"graph.mode": "split"}, "eager": {"graph.mode": "eager"}}
        for phase in ("begin", "body", "end", "instantiate", "upload", "launch"):
            for failures in (1, 3):
                ways[f"{phase}-{failures}"] = {"debug.inject": "true", "inject.capture": phase, "inject.captures": failures}
        for name, settings in ways.items():
            run = self.run_in(name)
            log = run.train({"train.steps": 200, **settings}).stderr
            self.assertEqual(run.metrics(), whole.metrics(), name)
            self.assertEqual(parameter_hash(run.newest()), parameter_hash(whole.newest()), name)
            self.assertEqual(log.count("with a graph for each phase"), 1 if "-" in name else 0, name)
            self.assertEqual(log.count("goes on without graphs"), 1 if name.endswith("-3") else 0, name)

    def test_validation_changes_nothing(self):
        on, off = self.trained("on"), self.trained("off", {"train.validate": "false"})
        self.assertEqual(parameter_hash(on.newest()), parameter_hash(off.newest()))
        unvalidated = [k for k in on.metrics()[0] if not k.startswith("validation_") and k != "best"]
        for a, b in zip(on.metrics(), off.metrics(), strict=True):
            self.assertEqual([a[k] for k in unvalidated], [b[k] for k in unvalidated])
        self.assertEqual(parameter_hash(off.best()), off.summary()["folds"][0]["parameters"])


class Folds(FolderTest):
    def test_a_fold_alone_equals_the_fold_among_others(self):
        settings = {"folds.kind": "rolling", "folds.count": 2, "train.steps": 200}
        both = self.trained("both", settings)
        alone = self.trained("alone", {**settings, "folds.only": 2})
        self.assertFalse(alone.best(1).exists())
        self.assertEqual(parameter_hash(both.best(2)), parameter_hash(alone.best(2)))
        self.assertEqual(both.newest().name, alone.newest().name)
        self.assertEqual(parameter_hash(both.newest()), parameter_hash(alone.newest()))
        self.assertEqual([row for row in both.metrics() if row["fold"] == "2"], alone.metrics())
        self.assertEqual([f["fold"] for f in both.summary()["folds"]], [1, 2])
        self.assertEqual(both.summary()["folds"][1], alone.summary()["folds"][0])
        self.assertNotEqual(parameter_hash(both.best(1)), parameter_hash(both.best(2)))
        self.assertGreater(both.summary()["test"]["bars"], alone.summary()["test"]["bars"])


class Evaluate(FolderTest):
    def test_info_and_evaluation_agree_with_the_summary(self):
        run = self.trained("run")
        summary = run.summary()
        self.assertEqual(parameter_hash(run.best()), summary["folds"][0]["parameters"])
        again = self.folder / "again"
        call("evaluate", run.best(), "--out", again, code=DONE)
        other = self.run_in("again").summary()
        self.assertEqual(other["test"], summary["test"])
        self.assertEqual(other["parameters"], summary["folds"][0]["parameters"])
        self.assertEqual(sorted(p.name for p in again.iterdir()), ["decisions.csv", "decisions.h5", "summary.json"])
        decisions = (again / "decisions.csv").read_text().splitlines()
        self.assertEqual(len(decisions) - 1, summary["test"]["bars"])

        # A full checkpoint is a policy too; the last one need not be the best.
        call("evaluate", run.newest(), "--out", self.folder / "last", code=DONE)
        self.assertEqual(self.run_in("last").summary()["parameters"], parameter_hash(run.newest()))

    def test_evaluation_on_a_file_of_the_same_bars(self):
        run = self.trained("run")
        bars = self.folder / "bars.parquet"
        call("data", "synth", "--bars", 1500, "--seed", 9, "--out", bars, code=DONE)
        for name in "ab":
            call("evaluate", run.best(), "--data", bars, "--out", self.folder / name, code=DONE)
        a, b = self.run_in("a"), self.run_in("b")
        self.assertEqual(without(a.summary()), without(b.summary()))
        self.assertEqual(digest(a.path / "decisions.csv"), digest(b.path / "decisions.csv"))
        self.assertEqual(digest(a.path / "decisions.h5"), digest(b.path / "decisions.h5"))
        self.assertNotIn("optimal_fraction", a.summary()["test"])


if __name__ == "__main__":
    main()
