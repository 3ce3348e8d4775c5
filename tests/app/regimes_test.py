"""The regime market from end to end: training, validation, test, evaluation; it has no optimum to compare with.

    regimes_test.py VULPES
"""

from vulpes_run import DONE, TINY, FolderTest, call, main, set_options

REGIMES = {**TINY, "synthetic.kind": "regimes", "train.steps": 200}


class Regimes(FolderTest):
    def check(self, summary):
        test = summary["test"]
        self.assertEqual(set(test["comparisons"]), {"buy and hold", "z-score", "flat"})
        self.assertEqual(test["comparisons"]["flat"]["growth_per_bar"], 0)
        self.assertFalse([name for name in test if "optimal" in name or "reference" in name])

    def test_trains_and_evaluates(self):
        run = self.run_in("regimes")
        output = call("train", "--out", run.path, *set_options(REGIMES), code=DONE).stdout
        self.check(run.summary())
        for row in run.metrics():
            self.assertTrue(row["validation_growth_bp"])
        for word in ("reference", "full information", "best possible"):
            self.assertNotIn(word, output)
        call("evaluate", run.best(), "--out", self.folder / "again", code=DONE)
        self.check(self.run_in("again").summary())

    def test_walks_forward(self):
        run = self.run_in("rolling")
        folds = {"folds.kind": "rolling", "folds.count": 2}
        call("train", "--out", run.path, *set_options({**REGIMES, **folds}), code=DONE)
        self.check(run.summary())
        self.assertEqual(len(run.summary()["folds"]), 2)


if __name__ == "__main__":
    main()
