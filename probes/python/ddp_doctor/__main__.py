# SPDX-License-Identifier: BSD-3-Clause
"""python -m ddp_doctor: the program, where its folder is not on PATH."""
import os
import sys

import ddp_doctor

path = ddp_doctor.program()
os.execv(path, [path, *sys.argv[1:]])
