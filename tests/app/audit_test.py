"""`vulpes audit` as a process: exit codes, the table, the JSON file, and that it writes nothing else.

    audit_test.py VULPES
"""

import json
import os

from vulpes_run import BAD_USAGE, DONE, EVERYTHING, FAILED, TINY, FolderTest, call, main, set_options


def audit(*arguments, code, settings=None):
    return call("audit", *arguments, *set_options({**TINY, **EVERYTHING, "run.device": "serial", **(settings or {})}),
                code=code)  # fmt: skip


class Audit(FolderTest):
    def test_a_training_that_keeps_the_rules(self):
        path = self.folder / "report.json"
        done = audit("--steps", 60, "--json", path, code=DONE)
        self.assertIn("No row is broken.", done.stdout)
        report = json.loads(path.read_text())
        self.assertFalse(report["broken"])
        self.assertEqual({r["table"] for r in report["rows"]}, {"step", "epoch boundary", "fold change"})
        self.assertLessEqual({r["verdict"] for r in report["rows"]}, {"ok", "n/a"})
        self.assertIn("train.steps = 60", report["settings"])
        self.assertEqual(os.listdir(self.folder), ["report.json"])

    def test_bad_usage(self):
        for arguments, settings, message in [(["--steps", 0], {}, "--steps"),
                                             (["missing.toml"], {}, "missing.toml"),
                                             ([], {"run.device": "abacus"}, "abacus"),
                                             ([], {"train.batch": 7}, "train.batch")]:  # fmt: skip
            done = audit(*arguments, settings=settings, code=BAD_USAGE)
            self.assertIn(message, done.stderr)

    def test_a_report_that_cannot_be_written(self):
        done = audit("--steps", 8, "--json", self.folder / "no" / "report.json", code=FAILED)
        self.assertIn("report.json", done.stderr)


if __name__ == "__main__":
    main()
