# SPDX-License-Identifier: BSD-3-Clause
"""scripts/fence: this repository keeps it, and a breach is named by its file and line."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent


def fence(root):
    done = subprocess.run([sys.executable, ROOT / "scripts/fence", root], capture_output=True, text=True)
    return done.returncode, done.stderr


class Fence(unittest.TestCase):
    def fence_of(self, files):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return fence(folder)

    def test_this_repository_keeps_it(self):
        self.assertEqual(fence(ROOT), (0, ""))

    def test_allows_the_direction_of_the_data(self):
        self.assertEqual(self.fence_of({"lib/timeline/load.cpp": '#include "lib/record/reader.h"\n#include "lib/error.h"\n'}), (0, ""))

    def test_names_an_include_against_it(self):
        code, words = self.fence_of({"lib/record/reader.cpp": '// Reads.\n#include "lib/timeline/timeline.h"\n'})
        self.assertEqual(code, 1)
        self.assertIn("lib/record/reader.cpp:2: lib/record may not include lib/timeline", words)

    def test_sees_through_public_headers(self):
        code, words = self.fence_of({"lib/diagnose/finding.h": "", "probes/libtorch/ddp/ddp.h": "#include <ddp_doctor/finding.h>\n"})
        self.assertEqual(code, 1)
        self.assertIn("probes/libtorch/ddp/ddp.h:1: probes/libtorch may not include lib/diagnose", words)

    def test_keeps_codes_in_the_rules_own_files(self):
        own = {"lib/diagnose/rules/ddp101_wrapper_bypassed.cpp": 'const Rule kOne = {.code = "DDP101"};\n'}
        self.assertEqual(self.fence_of(own), (0, ""))
        several = {"lib/diagnose/rules/ddp701_704_parity.cpp": 'const Rule kTwo = {.code = "DDP702"};\n'}
        self.assertEqual(self.fence_of(several), (0, ""))
        code, words = self.fence_of({"lib/diagnose/rules/ddp701_704_parity.cpp": 'const Rule kTwo = {.code = "DDP705"};\n'})
        self.assertEqual(code, 1)
        code, words = self.fence_of({"tool/cli/gate.cpp": '// as in DDP101\nif (finding.rule == "DDP101") {}\n'})
        self.assertEqual(code, 1)
        self.assertIn("tool/cli/gate.cpp:2: use the constant or the fields of rule DDP101", words)


if __name__ == "__main__":
    unittest.main()
