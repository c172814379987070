# SPDX-License-Identifier: BSD-3-Clause
# What is loaded into a program in Python, built with AddressSanitizer and UndefinedBehaviorSanitizer, in ranks that have their runtimes preloaded:
# every step examined, a gradient clipped, one rank killed.
. "$(dirname "$0")/lib.sh"
need_torch
runtimes=$(for name in libasan.so libubsan.so; do realpath "$(cc -print-file-name=$name)"; done | paste -sd :)
cat >"$work/python3" <<END
#!/bin/sh
export LD_PRELOAD=$runtimes ASAN_OPTIONS=detect_leaks=0:alloc_dealloc_mismatch=0:log_path=$work/asan UBSAN_OPTIONS=print_stacktrace=1:log_path=$work/ubsan
exec $PYTHON_TORCH "\$@"
END
chmod +x "$work/python3"
deadline=500
doctor 0 run --every 1 --python "$work/python3" "$here/train.py" -- --steps 30
printed '^Verdict: healthy: 2 ranks x 30 steps'
doctor 1 run --every 1 --python "$work/python3" "$here/train.py" -- --bypass --end kill
printed 'DDP101'
for report in "$work"/asan.* "$work"/ubsan.*; do
  [ ! -s "$report" ] || fail "$(head -c 3000 "$report")"
done
