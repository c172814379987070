# SPDX-License-Identifier: BSD-3-Clause
# explain, rules, env, demo, --version, --help: quick, and without torch in the tool itself.
. "$(dirname "$0")/lib.sh"
doctor 0 --version; printed '^ddp-doctor [0-9]+\.[0-9]+\.[0-9]+$'
! ldd "$DDP_DOCTOR" | grep -E 'libtorch|libc10' || fail "ddp-doctor links torch"
doctor 0 --help; printed 'Exit codes'
doctor 0 run --help; printed '--nproc-per-node'
doctor 0 rules; printed '^DDP101 wrapper-bypassed +error'
while read -r code _; do
  doctor 0 explain "$code"; printed "^# $code "
done < <("$DDP_DOCTOR" rules)
doctor 0 explain wrapper-bypassed; printed '^# DDP101'
doctor 0 env; printed 'LibTorch [0-9]'
doctor 0 demo; printed '^orphan'
doctor 1 demo orphan -q; printed 'DDP201'
doctor 1 demo curriculum -q; printed 'DDP101'
doctor 1 demo conditional -q; printed 'DDP202'
doctor 0 demo multi_forward; printed 'DDP204'
DDP_DOCTOR_STEPS=3 doctor 0 run "$EXAMPLES/curriculum.pt" --strategies ddp --format json
json 'len(runs["ddp"]["steps_table"]) == 3'
