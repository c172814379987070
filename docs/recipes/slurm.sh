#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#SBATCH --job-name=ddp-doctor
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --time=00:20:00
# One task for each rank. Each node leaves the records of its ranks in a folder of its own, below one that all nodes see; when all have
# ended, they are read together and judged. The exit code is that of the gate.
set -eu
export MASTER_ADDR MASTER_PORT PROGRAM RUNS
MASTER_ADDR=${MASTER_ADDR:-$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)}
MASTER_PORT=${MASTER_PORT:-$((20000 + SLURM_JOB_ID % 20000))}
PROGRAM=${PROGRAM:-train.py}
RUNS=${RUNS:-$SLURM_SUBMIT_DIR}/ddp-doctor-$SLURM_JOB_ID
mkdir "$RUNS"
# A node's own verdict is about its own ranks only: it does not decide.
srun bash -c '
  export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=$SLURM_LOCALID LOCAL_WORLD_SIZE=$SLURM_NTASKS_PER_NODE
  ddp-doctor run -q --every 1 --fail-on never --out "$RUNS/node-$SLURM_NODEID" "$PROGRAM"' || true
ddp-doctor report --brief --report "$RUNS/report.json" "$RUNS"/node-*
