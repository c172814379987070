# SPDX-License-Identifier: BSD-3-Clause
# Sourced by .ci/run and .ci/nightly: steps with their times, printed as a table at the end, however it ends; with
# it the tests that failed or were skipped, with reasons, and the slowest (tests/summary.py).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CI=true
export CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}
export PIP_NO_CACHE_DIR=1  # pip's torch comes with 3 GB of CUDA, which would be kept twice
steps=()
closing=""

step() {
  end_step
  current=$1 begun=$SECONDS
  printf '\n=== %s (%s s since start, %s free)\n' "$current" "$SECONDS" "$(df -h --output=avail . | tail -n 1 | tr -d ' ')"
}

end_step() {
  [ -z "${current:-}" ] || steps+=("$(printf '%6d s  %s' $((SECONDS - begun)) "$current")")
  current=""
}

table() {
  local code=$?
  end_step
  printf '\nSeconds of each step (%s s in all):\n' "$SECONDS"
  printf '%s\n' ${steps[@]+"${steps[@]}"}
  [ ! -s "$closing" ] || sed -n '/% tests passed/,$p' "$closing"
  rm -f "$closing"
  return "$code"
}
trap table EXIT

# The README's command from a bare machine whose last part is $1, word for word: exactly one, whatever else the page shows.
readme_command() {
  local lines
  mapfile -t lines < <(grep -E "^scripts/setup .*&& $1" README.md)
  [ "${#lines[@]}" = 1 ] || { echo "README.md has ${#lines[@]} commands that set up and end with '$1', not one" >&2; return 1; }
  echo "${lines[0]}"
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}
