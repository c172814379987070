// SPDX-License-Identifier: BSD-3-Clause
// Errors of launchers, and before the ranks have met: torch/distributed/elastic,
// torch/multiprocessing/spawn.py, torch/distributed/rendezvous.py and distributed_c10d.py.
#include <array>

#include "lib/explain/known_texts.h"

namespace ddp_doctor {
namespace {

constexpr char kOnOneMachine[] =
    "launches the ranks on one machine, which shows whether the program or the launch is at fault";

// elastic/rendezvous/c10d_rendezvous_backend.py
const KnownText kRendezvousConnection = {
    .id = "rendezvous-connection",
    .depth = Depth::kCollective,
    .phrases = {{"RendezvousConnectionError"}, {"The connection to the C10d store has failed"}},
    .says = "torchrun could not reach the store at its rendezvous endpoint, or lost it.",
    .means = {"At the start: the endpoint is wrong, or nobody listens there yet. Later: the agent "
              "that hosts the store ended, so its machine's log comes first."},
    .causes =
        {"--rdzv_endpoint names a host that does not take itself for the host: torchrun starts the "
         "store where the name resolves to its own address. Use the address that hostname -I "
         "prints there, or --rdzv_conf is_host=1 on that machine alone.",
         "A firewall, or a port that only the first machine can reach.",
         "The agent of the first machine had finished or failed: torchrun of the other machines "
         "then fails with this error.",
         "Different --rdzv_id or --nnodes on the machines."},
    .commands = {{"nc -vz HOST PORT", "from each machine, with the address of --rdzv_endpoint"}},
    .run = kOnOneMachine,
};

// elastic/rendezvous/dynamic_rendezvous.py
const KnownText kRendezvousTimeout = {
    .id = "rendezvous-timeout",
    .depth = Depth::kCollective,
    .phrases = {{"RendezvousTimeoutError"}},
    .says = "Fewer machines than --nnodes joined the rendezvous in time.",
    .causes = {"A machine was not started, or its torchrun failed: see its log.",
               "Different --rdzv_id, --rdzv_endpoint or --nnodes on the machines.",
               "A machine waited longer for its resources than the timeout: --rdzv_conf "
               "join_timeout=SECONDS (600 by default)."},
    .run = kOnOneMachine,
};

const KnownText kRendezvousClosed = {
    .id = "rendezvous-closed",
    .depth = Depth::kConsequence,
    .rules = {&kRankCrashed},
    .phrases = {{"RendezvousClosedError"}, {"RendezvousGracefulExitError"}},
    .says = "The rendezvous was closed: the job had already ended on another machine.",
    .causes =
        {"DDP504: a rank of another machine failed, and its agent closed the rendezvous. Look "
         "at that machine's output first.",
         "A job that is started again with the --rdzv_id of one that has ended."},
    .run = kOnOneMachine,
};

// elastic/multiprocessing/api.py
const KnownText kWorkerFailed = {
    .id = "worker-failed",
    .depth = Depth::kConsequence,
    .rules = {&kRankCrashed},
    .phrases = {{"failed (exitcode: ", Context::kDistributed}},
    .part_of = {"first-failure"},
    .hints = {{"exitcode: -9",
               "-9 is SIGKILL, without an error message: usually the system's out-of-memory killer "
               "(see dmesg), or a scheduler's limit."},
              {"exitcode: -11", "-11 is SIGSEGV: a crash in native code."},
              {"exitcode: -7",
               "-7 is SIGBUS: usually too little shared memory (docker run "
               "--shm-size, --ipc=host)."},
              {"exitcode: -6",
               "-6 is SIGABRT: Gloo, NCCL's watchdog and CUDA's asserts end a "
               "process so, after they print an error."}},
    .says = "torchrun saw a rank end, and ends the others.",
    .means = {"The local rank counts the ranks of one machine. The rank's own output, above this "
              "line, has the reason."},
    .causes = {"The exception or signal that ended that rank."},
    .run = "records each rank's error, with step and phase",
    .fields = {{"exit code", "exitcode: "}, {"local rank", "local_rank: "}},
};

const KnownText kLauncherSignal = {
    .id = "launcher-signal",
    .depth = Depth::kConsequence,
    .phrases = {{"got signal: ", Context::kDistributed}, {"death signal, shutting down workers"}},
    .hints = {{"got signal: 1 ",
               "1 is SIGHUP: the terminal or the ssh session was closed. nohup does "
               "not help, since torchrun handles SIGHUP itself: use tmux, or "
               "setsid."},
              {"SIGHUP death signal",
               "SIGHUP: the terminal or the ssh session was closed. nohup does not help, since "
               "torchrun handles SIGHUP itself: use tmux, or setsid."},
              {"got signal: 2 ", "2 is SIGINT: Ctrl-C."},
              {"got signal: 15 ", "15 is SIGTERM: a scheduler, a time limit, or kill."}},
    .says = "torchrun itself got a signal from outside, and ended the ranks.",
    .means = {"No rank is at fault."},
    .causes = {"A closed terminal, a scheduler, a time limit, or a person."},
    .fields = {{"signal", "got signal: "}},
};

// multiprocessing/spawn.py
const KnownText kSpawnedExited = {
    .id = "spawned-process-exited",
    .depth = Depth::kConsequence,
    .rules = {&kRankCrashed},
    .phrases = {{"ProcessExitedException: process "}},
    .hints = {{"signal SIGKILL",
               "SIGKILL, without an error message: usually the system's "
               "out-of-memory killer (see dmesg)."},
              {"signal SIGSEGV", "SIGSEGV: a crash in native code."},
              {"signal SIGBUS",
               "SIGBUS: usually too little shared memory (docker run --shm-size)."},
              {"signal SIGABRT",
               "SIGABRT: Gloo, NCCL's watchdog and CUDA's asserts end a process so, "
               "after they print an error."}},
    .says =
        "A process that mp.spawn started ended by a signal or by an exit code, without a Python "
        "exception.",
    .causes = {"See that process's own output above."},
    .run = "records each rank's error, with step and phase",
    .fields = {{"process", "ProcessExitedException: process "},
               {"signal", "terminated with signal "},
               {"exit code", "terminated with exit code "}},
};

// rendezvous.py, _env_rendezvous_handler
const KnownText kNoLauncher = {
    .id = "no-launcher",
    .phrases = {{"environment variable RANK expected, but not set"},
                {"environment variable WORLD_SIZE expected, but not set"},
                {"environment variable MASTER_ADDR expected, but not set"},
                {"environment variable MASTER_PORT expected, but not set"},
                {"environment variable LOCAL_RANK expected, but not set"},
                {"KeyError: 'LOCAL_RANK'"},
                {"KeyError: 'WORLD_SIZE'"}},
    .says =
        "The program expects the environment that a launcher gives its ranks, and was started "
        "without one.",
    .causes = {"It was started with python instead of torchrun (or srun, mpirun, accelerate, "
               "deepspeed).",
               "Under srun or mpirun the variables have other names (SLURM_PROCID, "
               "OMPI_COMM_WORLD_RANK): set RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and "
               "MASTER_PORT from them."},
    .commands = {{"torchrun --standalone --nproc_per_node 2 PROGRAM", "starts two ranks"}},
    .run = "starts the ranks by itself, and sets these variables",
    .fields = {{"missing", "environment variable "}, {"missing", "KeyError: '"}},
};

// distributed_c10d.py, _get_default_group
const KnownText kNoGroup = {
    .id = "no-process-group",
    .phrases = {{"Default process group has not been initialized"}},
    .says =
        "A collective, a wrapper or a mesh was used before init_process_group, or after "
        "destroy_process_group.",
    .causes =
        {"The call is missing on this path: a script that was meant for a launcher, a module "
         "that is imported first, an evaluation without distributed training.",
         "destroy_process_group() was called, and something used the group later: a logger, a "
         "destructor, a second trainer.",
         "A process that was spawned by a rank (a data loader's worker) has no group."},
    .run = "names the rank and the line",
};

// c10/cuda/CUDAException.cpp; the launch gives a rank a device that its machine does not have.
const KnownText kInvalidDevice = {
    .id = "invalid-device-ordinal",
    .phrases = {{"CUDA error: invalid device ordinal", Context::kDistributed}},
    .says = "A rank chose a GPU that its machine does not have.",
    .causes =
        {"More ranks on the machine than GPUs: compare --nproc_per_node with "
         "torch.cuda.device_count().",
         "The rank in the job (RANK) was used in place of LOCAL_RANK to choose the device: it "
         "works on the first machine only.",
         "CUDA_VISIBLE_DEVICES hides GPUs: device numbers then count those that are visible, "
         "from 0."},
    .commands = {{"echo $CUDA_VISIBLE_DEVICES; nvidia-smi -L", "on that machine"}},
    .run = "on CPUs shows whether the program itself trains with as many ranks",
};

}  // namespace

KnownTexts launch_texts() {
  static constexpr std::array kTexts = {
      &kRendezvousConnection, &kRendezvousTimeout, &kRendezvousClosed,
      &kWorkerFailed,         &kLauncherSignal,    &kSpawnedExited,
      &kNoLauncher,           &kNoGroup,           &kInvalidDevice};
  return kTexts;
}

}  // namespace ddp_doctor
