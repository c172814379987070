# SPDX-License-Identifier: BSD-3-Clause
# Who starts the ranks of a program in C++, and what happens when it fails.
. "$(dirname "$0")/lib.sh"
trainer=$EXAMPLES/cpp/curriculum

# Started by somebody else: the ranks record all the same.
cat >"$work/launch" <<'SH'
#!/bin/sh
# Two ranks of the command in the arguments.
export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$1
shift
RANK=1 "$@" & RANK=0 "$@" || exit
wait $!
SH
chmod +x "$work/launch"
port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
doctor 0 run --format json -- "$work/launch" "$port" "$trainer" --healthy
json 'r["world_size"] == 2 and r["verdict"] == "healthy"'

# Not under ddp-doctor: it trains, and leaves nothing.
mkdir "$work/plain"
(cd "$work/plain" && timeout 60 "$work/launch" "$port" "$trainer" --healthy) >"$work/out" 2>"$work/err" || fail "the plain run ended with $?"
[ "$(grep -c loss "$work/out")" = 2 ] || fail "the plain run said nothing"
[ -z "$(ls -A "$work/plain")" ] || fail "left by a plain run: $(ls "$work/plain")"

# Without its environment it says how to start it.
timeout 60 env -u RANK -u WORLD_SIZE -u MASTER_PORT "$trainer" >"$work/out" 2>"$work/err" && fail "it trained without ranks"
said 'RANK is not set: start the program with ddp-doctor run --nproc-per-node 2 -- PROGRAM'

# A program that has no Examination is started as often as asked, and there is nothing to examine.
doctor 3 run --nproc-per-node 2 -- /bin/echo hello
said '\[rank 1\] hello'
printed 'program needs a ddp_doctor::Examination'
# One that falls before its Examination begins.
doctor 2 run --nproc-per-node 2 -- /bin/false
complained 'ended with exit status 1 before its ddp_doctor::Examination began'

# The program that docs/cpp.md shows is the one that the build compiles, and it is in sync.
source=$here/../..
sed -n '/^#include <ddp_doctor\/distributed_data_parallel.h>/,/^```/p' "$source/docs/cpp.md" | sed '$d' >"$work/shown"
sed 1,2d "$source/examples/cpp/first.cpp" | diff "$work/shown" - || fail "docs/cpp.md shows another program than examples/cpp/first.cpp"
doctor 0 run --nproc-per-node 2 -- "$EXAMPLES/cpp/first"
printed '^Verdict: healthy'
