# SPDX-License-Identifier: BSD-3-Clause
# --backend nccl where there is no NCCL, or no GPU, says which, and what to do. (tests/gpu/ has the rest.)
. "$(dirname "$0")/lib.sh"
if command -v nvidia-smi >/dev/null && nvidia-smi >/dev/null 2>&1; then
  echo "skipped: there is a GPU, where scripts/gpu tests this"
  exit 77
fi
doctor 2 run "$EXAMPLES/curriculum.pt" --backend nccl
complained 'NCCL is unavailable|no GPU is visible'
complained '--backend gloo'

doctor 0 env
printed '^NCCL for them  .*(NCCL is unavailable|[0-9.]+; 0 GPUs)'
NCCL_DEBUG=WARN doctor 0 env
printed "^NCCL's settings .*NCCL_DEBUG=WARN"
