"""`vulpes step`: the same input gives the same bytes; another setting gives others.

    step_test.py VULPES WRITE_STEP_STATE
"""

import subprocess
import sys

from vulpes_run import BAD_USAGE, DONE, FAILED, FolderTest, call, digest, environment, main

WRITE_STEP_STATE = sys.argv.pop(2)


class Step(FolderTest):
    def setUp(self):
        super().setUp()
        self.state = self.folder / "state.h5"
        subprocess.run([WRITE_STEP_STATE, str(self.state)], check=True, env=environment())

    def step(self, name, *options, **more):
        out = self.folder / name
        call("step", "--state", self.state, "--out", out, *options, **{"code": DONE, **more})
        return digest(out)

    def test_same_input_same_bytes(self):
        before = digest(self.state)
        first = self.step("a.h5")
        self.assertEqual(self.step("b.h5"), first)
        self.assertEqual(digest(self.state), before)
        self.assertNotEqual(self.step("d.h5", "--set", "optimiser.tau=0.5"), first)
        self.assertNotEqual(self.step("e.h5", "--set", "agent.target=per_branch"), first)
        self.assertNotEqual(self.step("f.h5", "--set", "agent.double_dqn=false"), first)

    def test_serial_device(self):
        serial = self.step("a.h5", "--set", "run.device=serial")
        self.assertEqual(self.step("b.h5", "--set", "run.device=serial"), serial)

    def test_errors_leave_no_file(self):
        for arguments, code in ((["--set", "agent.gamma=2"], BAD_USAGE), (["--set", "network.atoms=12"], FAILED)):
            out = self.folder / "out.h5"
            result = call("step", "--state", self.state, "--out", out, *arguments, code=code)
            self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
            self.assertFalse(out.exists())
        broken = self.folder / "broken.h5"
        broken.write_bytes(self.state.read_bytes()[:1000])
        call("step", "--state", broken, "--out", self.folder / "out.h5", code=FAILED)


if __name__ == "__main__":
    main()
