"""`vulpes step`: the same input gives the same bytes; another setting gives others.

step_test.py VULPES WRITE_STEP_STATE
"""

import subprocess
import sys

from vulpes_run import BAD_USAGE, DONE, FolderTest, call, digest, environment, main

WRITE_STEP_STATE = sys.argv.pop(2)


class Step(FolderTest):
    def setUp(self):
        super().setUp()
        self.states = {kind: self.folder / f"{kind}.h5" for kind in ("batch", "replay")}
        for kind, path in self.states.items():
            subprocess.run([WRITE_STEP_STATE, str(path), kind], check=True, env=environment())

    def step(self, kind, name, *options):
        out = self.folder / name
        call("step", "--state", self.states[kind], "--out", out, *options, code=DONE)
        return digest(out)

    def test_same_input_same_bytes(self):
        for kind, state in self.states.items():
            before = digest(state)
            first = self.step(kind, "a.h5")
            self.assertEqual(self.step(kind, "b.h5"), first)
            self.assertEqual(digest(state), before)
            for setting in (
                "optimiser.tau=0.5",
                "agent.target=per_branch",
                "agent.double_dqn=false",
                "cql.weight=1",
                "diversity.weight=0",
                "network.survival=0.9",
                "agent.scale_trunk_gradient=false",
            ):
                self.assertNotEqual(self.step(kind, "c.h5", "--set", setting), first, setting)
        first = self.step("replay", "a.h5")
        for setting in (
            "run.seed=9",
            "hindsight.share=1",
            "hindsight.update_priorities=true",
            "reward.goal_bonus=1",
            "agent.n_step=1",
            "replay.beta=0.9",
        ):
            self.assertNotEqual(self.step("replay", "c.h5", "--set", setting), first, setting)

    def test_serial_device(self):
        for kind in self.states:
            serial = self.step(kind, "a.h5", "--set", "run.device=serial")
            self.assertEqual(self.step(kind, "b.h5", "--set", "run.device=serial"), serial)

    def test_errors_leave_no_file(self):
        state = self.states["batch"]
        for arguments in (["--set", "agent.gamma=2"], ["--set", "network.atoms=12"], ["--set", "network.hidden1=40"]):
            out = self.folder / "out.h5"
            result = call("step", "--state", state, "--out", out, *arguments, code=BAD_USAGE)
            self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
            self.assertFalse(out.exists())
        broken = self.folder / "broken.h5"
        broken.write_bytes(state.read_bytes()[:1000])
        call("step", "--state", broken, "--out", self.folder / "out.h5", code=BAD_USAGE)


if __name__ == "__main__":
    main()
