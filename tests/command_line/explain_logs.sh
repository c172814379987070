# SPDX-License-Identifier: BSD-3-Clause
# explain -: whole logs, in which the cause is not what is loudest; and what is no log at all.
. "$(dirname "$0")/lib.sh"
cat >"$work/train.log" <<'LOG'
W1121 17:50:01 torch/distributed/run.py:792] Setting OMP_NUM_THREADS environment variable for each process to be 1
epoch 1:  50%|#####     | 1/2
[rank0]: Traceback (most recent call last):
[rank1]: Traceback (most recent call last):
[rank0]:   File "/home/me/train.py", line 52, in <module>
[rank1]:   File "/home/me/train.py", line 49, in <module>
[rank0]: RuntimeError: [/gloo/transport/tcp/pair.cc:561] Connection closed by peer [127.0.0.1]:7563. This is typically caused by a remote worker crashing.
[rank1]: RuntimeError: Expected to mark a variable ready only once. This error is caused by one of the following reasons: 1) ...
[rank1]: Parameter at index 1 with name f.bias has been marked as ready twice.
LOG
doctor 0 explain - <"$work/train.log"
printed '^2 known texts in 9 lines, nearest to the cause first'
[ "$(grep -c '^DDP' "$work/out")" = 2 ] && grep '^DDP' "$work/out" | head -n 1 | grep -q '^DDP205 .*rank 1, from line 8' || fail "the cause does not stand first"
printed 'a consequence of the first error above, DDP205'
printed 'ddp-doctor run /home/me/train.py'

doctor 0 explain - --format json <"$work/train.log"
"$python" - "$work/out" <<'PY' || fail "not the JSON expected"
import json, sys
r = json.load(open(sys.argv[1]))
first, second = r["explanations"]
assert (r["schema_version"], r["lines"], r["program"]) == (1, 9, "/home/me/train.py")
assert (first["text"], first["rules"], first["ranks"]) == ("ready-twice", ["DDP205"], [1])
assert first["said"][0]["indices"] == [1] and first["said"][0]["names"] == ["f.bias"]
assert (second["text"], second["ranks"]) == ("peer-lost", [0])
PY
doctor 0 explain DDP205 --format json
"$python" -c 'import json, sys; assert json.load(open(sys.argv[1]))["name"] == "marked-ready-twice"' "$work/out" || fail "not the rule's JSON"

# A rank's own error comes before what it made others say.
doctor 0 explain - <<<'[rank0]: RuntimeError: [/gloo/transport/tcp/pair.cc:561] Connection closed by peer [127.0.0.1]:7563
[rank1]: ValueError: bad sample 17'
printed '^    rank 1: error ValueError: bad sample 17$'

doctor 3 explain - <<<'ValueError: bad sample 17'; said 'ValueError: bad sample 17'; said 'ddp-doctor run train.py'
doctor 3 explain - <<<'it does not work'; said 'Paste the whole output'
doctor 3 explain - </bin/ls
doctor 2 explain - </dev/null; complained 'standard input is empty'
doctor 2 explain DDP999; complained 'reads an error text from standard input'
