# SPDX-License-Identifier: BSD-3-Clause
# The recipes of docs/recipes/, each run as far as a machine without the service can: healthy programs pass, sick ones do not.
. "$(dirname "$0")/lib.sh"
need_torch
unset GITHUB_STEP_SUMMARY
recipes=$here/../../docs/recipes
mkdir "$work/bin" && ln -s "$(realpath "$DDP_DOCTOR")" "$work/bin/ddp-doctor"
export PATH=$work/bin:$PATH
export GIT_AUTHOR_NAME=Somebody GIT_AUTHOR_EMAIL=somebody@example.org GIT_COMMITTER_NAME=Somebody GIT_COMMITTER_EMAIL=somebody@example.org
project=$work/project
git init -q "$project" && cd "$project" || exit 1

write() {  # write healthy|sick
  local sick=False
  [ "$1" = sick ] && sick=True
  sed "s/if args.bypass else/if $sick else/" "$here/train.py" >train.py
}
# gate NAME EXIT-CODE COMMAND...
gate() {
  local name=$1 want=$2 got=0
  shift 2
  last="recipe $name"
  timeout 300 "$@" >"$work/out" 2>"$work/err" </dev/null || got=$?
  if [ "$want" = 0 ]; then [ $got = 0 ]; else [ $got != 0 ]; fi || fail "$last: exit code $got"
  nothing_left
}
script_of() {  # the commands of a workflow: a Python expression over it
  "$python" -c 'import sys, yaml; w = yaml.safe_load(open(sys.argv[1])); print(eval(sys.argv[2]))' "$1" "$2"
}
github=$(script_of "$recipes/github.yml" '[step["run"] for step in w["jobs"]["check"]["steps"] if step.get("name") == "Check"][0]')
action=$(script_of "$recipes/../../action.yml" '[step["run"] for step in w["runs"]["steps"] if step["name"] == "Check"][0]')
export PROGRAM=train.py ARGS="" NPROC=2 PYTHON=$PYTHON_TORCH REPORT=ddp-doctor.json OPTIONS=""
gitlab=$(script_of "$recipes/gitlab.yml" '"\n".join(w["data-parallel"]["script"])')
[ "$(script_of "$recipes/gitlab.yml" '" ".join(w["data-parallel"]["artifacts"]["reports"].values())')" = 'ddp-doctor.xml ddp-doctor-quality.json' ] || fail "gitlab.yml: artifacts"

write healthy
export GITHUB_STEP_SUMMARY=$work/summary
gate github 0 bash -ec "$github"
gate action 0 bash -ec "$action"
cat >launch.sh <<'SH'
export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1
MASTER_PORT=$("$PYTHON" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
export MASTER_PORT
for rank in 0 1; do RANK=$rank "$PYTHON" train.py & done
wait
SH
PROGRAM="" NPROC="" ARGS="bash launch.sh" gate action-command 0 bash -ec "$action"
printed '^Verdict: healthy: 2 ranks x 4 steps'
gate gitlab 0 bash -ec "$gitlab"
cp "$recipes/test_data_parallel.py" "$recipes/CMakeLists.txt" .
gate pytest 0 "$PYTHON_TORCH" test_data_parallel.py
gate ctest 0 bash -ec "cmake -G Ninja -S . -B $work/build && ctest --test-dir $work/build --output-on-failure"
echo '*.sarif
*.xml
*.json' >.gitignore
git add -A && git commit -q -m Healthy
git init -q --bare "$work/remote" && cp "$recipes/pre-push" .git/hooks/pre-push
gate pre-push 0 git push -q "$work/remote" HEAD:refs/heads/main

write sick
: >"$work/summary"
gate github 1 bash -ec "$github"
printed '^::error file=train.py,line=[0-9]+,title=DDP101 wrapper-bypassed::'
grep -q 'DDP101' "$work/summary" && "$python" "$here/valid.py" sarif ddp-doctor.sarif 2>"$work/err" || fail "$last: no summary, or no SARIF"
gate action 1 bash -ec "$action"
printed '^::error file=train.py,line=[0-9]+,title=DDP101 wrapper-bypassed::'
[ -s ddp-doctor.json ] || fail "$last: no report"
gate gitlab 1 bash -ec "$gitlab"
"$python" "$here/valid.py" gitlab ddp-doctor-quality.json && "$python" "$here/valid.py" junit ddp-doctor.xml || fail "$last: artifacts"
gate pytest 1 "$PYTHON_TORCH" test_data_parallel.py
said 'Verdict: sick: DDP101'
gate ctest 1 ctest --test-dir "$work/build" --output-on-failure
printed 'Verdict: sick: DDP101'
gate pre-push 0 git push -q "$work/remote" HEAD:refs/heads/other  # what is committed is healthy still
git commit -q -a -m Sick
gate pre-push 1 git push -q "$work/remote" HEAD:refs/heads/main
said 'Verdict: sick: DDP101'
[ "$(git worktree list | wc -l)" = 1 ] || fail "$last: left a worktree"

# Two nodes of two ranks each, for which this machine stands twice.
cat >"$work/bin/srun" <<'SH'
#!/bin/bash
pids=()
for task in 0 1 2 3; do
  node=$((task / 2))
  mkdir -p "$TMPDIR/node-$node"
  TMPDIR=$TMPDIR/node-$node SLURM_PROCID=$task SLURM_NODEID=$node SLURM_LOCALID=$((task % 2)) SLURM_NTASKS=4 SLURM_NTASKS_PER_NODE=2 "$@" &
  pids+=($!)
done
code=0
for pid in "${pids[@]}"; do wait "$pid" || code=$?; done
rm -r "$TMPDIR"/node-*
exit $code
SH
chmod +x "$work/bin/srun"
export SLURM_JOB_ID=$$ SLURM_SUBMIT_DIR=$work MASTER_ADDR=127.0.0.1
gate slurm 1 bash "$recipes/slurm.sh"
printed '^Verdict: sick: DDP101'; printed 'ranks 0 to 3|ranks 0, 1, 2 and 3'
rm -r "$work/ddp-doctor-$$"
write healthy
gate slurm 0 bash "$recipes/slurm.sh"
printed '^Verdict: healthy: 4 ranks x 4 steps, replicas bit-identical$'
