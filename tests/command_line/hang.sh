# SPDX-License-Identifier: BSD-3-Clause
# A rank that hangs in a step: stopped after --timeout, named, the other steps reported, nothing left.
. "$(dirname "$0")/lib.sh"
doctor 1 run "$FIXTURES/endless.pt" --strategies ddp --timeout 3 --format json
json 'first["rule"] == "DDP501" and first["ranks"] == [1] and first["first_step"] == 3'
json 'runs["ddp"]["outcome"].startswith("hung in step 3") and len(runs["ddp"]["steps_table"]) == 2'
