# SPDX-License-Identifier: BSD-3-Clause
# A full disk: the message says so, exit 2, nothing left, and the record is readable up to the last step that fitted.
. "$(dirname "$0")/lib.sh"
mkdir "$work/disk"
mount -t tmpfs -o size=3m tmpfs "$work/disk" 2>"$work/err" || not_permitted "no tmpfs can be mounted here: $(cat "$work/err")"
trap 'umount -l "$work/disk"; rm -rf "$work"' EXIT
doctor 2 run "$EXAMPLES/orphan.pt" --strategies ddp-find-unused --steps 2000 --out "$work/disk/run"
complained 'disk|full|space'
doctor 3 report "$work/disk/run" --format json
json 'r["verdict"] == "inconclusive" and len(runs["ddp-find-unused"]["steps_table"]) >= 1'
