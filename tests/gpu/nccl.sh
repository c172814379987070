#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A TorchScript program over NCCL, one rank; two where there are two GPUs. usage: nccl.sh BUILD; exit 77: no GPU, or a build without NCCL.
set -euo pipefail
build=$1
doctor=$build/bin/ddp-doctor
says=$("$build/libexec/ddp-doctor/script-probe" --nccl-version)
echo "NCCL: $says"
gpus=$(sed -nE 's/.*; ([0-9]+) GPUs$/\1/p' <<< "$says")
[ "${gpus:-0}" -gt 0 ] || { echo "skipped: no NCCL or no GPU"; exit 77; }
"$doctor" run --backend nccl --nproc-per-node 1 "$build/examples/curriculum.pt" | tee /dev/stderr | grep -q 'NCCL'
[ "$gpus" -lt 2 ] || "$doctor" run --backend nccl --nproc-per-node 2 "$build/examples/curriculum.pt"
