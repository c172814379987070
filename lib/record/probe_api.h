// SPDX-License-Identifier: BSD-3-Clause
/* The C API through which probes in other languages write one rank's record: ctypes in Python,
 * which knows nothing of digests, SQLite or C++. Built as libddp-doctor-probe.so, which links no
 * torch.
 *
 * Every function may be called from any thread. None of them raises or ends the process: those that
 * can fail return 0 for success, and otherwise ddpd_error() says why, for the calling thread.
 * Texts are UTF-8, JSON where it says so: objects whose members have the names of record.h. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddpd_record ddpd_record;

/* What ddpd_observe takes from each tensor. */
enum {
  DDPD_DIGEST = 1,    /* digest and figures */
  DDPD_SAMPLE = 2,    /* the values at a few fixed positions */
  DDPD_KEEP = 4,      /* all values, while at least half of the record's budget for them is left */
  DDPD_KEEP_LAST = 8, /* all values, from whatever is left of the budget */
  DDPD_KEEP_WANTED = 16 /* all values: the watcher asked for them */
};

const char* ddpd_version(void);
const char* ddpd_error(void);

/* Makes folder/rank-NNNNN.sqlite and .progress. `header`: {"rank", "world_size", "probe",
 * "program", "details": {...}}. `values_budget`: bytes of tensor values that the record may keep.
 * Null on failure. */
ddpd_record* ddpd_open(const char* folder, const char* header, int64_t values_budget);
/* Closes the record in a state that needs no recovery, and forgets it. In a process forked from the
 * one that opened it: forgets it only. */
void ddpd_close(ddpd_record* record);

/* Describes tensors: a JSON array of {"id", "name", "kind", "dtype", "sizes", "trainable",
 * "ddp_index", "module", "wrapper"}. Replaces those of the same id. */
int ddpd_tensors(ddpd_record* record, const char* tensors);

/* Looks at `count` contiguous tensors, of the dtype and size that they were described with, at
 * `stage` (record.h) of the step under way. A tensor seen before at this stage of this step is seen
 * anew. `what`: DDPD_* flags. Memory must be readable by the CPU. */
int ddpd_observe(ddpd_record* record, int stage, int what, int64_t count, const int32_t* tensors,
                 const void* const* data);
/* The same for one tensor of any strides (in elements) and of its own dtype. */
int ddpd_observe_view(ddpd_record* record, int stage, int what, int32_t tensor, const void* data,
                      const char* dtype, int dimensions, const int64_t* sizes,
                      const int64_t* strides);
/* ddpd_observe for tensors in the memory of GPU number `device`: looked at on `stream`, a CUstream
 * of the program's (null: the default one), and by nobody waited for. They must stay until the
 * stream has come so far, as for a kernel of the program's own. Fails where libddp-doctor-cuda.so
 * or a driver of CUDA 12 is missing. */
int ddpd_observe_on_device(ddpd_record* record, int stage, int what, int device, void* stream,
                           int64_t count, const int32_t* tensors, const void* const* data);
/* A loss of the step under way, one element of `dtype`; ddpd_step writes the mean of them. */
int ddpd_loss_on_device(ddpd_record* record, int device, void* stream, const void* data,
                        const char* dtype);
/* What became of `count` parameters in the step under way; replaces what was said before. Four
 * numbers for each: its id, a sum of these, how often a gradient arrived, and in which backward of
 * the step the last one did, from 1 (record.h, Usage). */
enum {
  DDPD_USED = 1,
  DDPD_REACHED_KNOWN = 2,
  DDPD_REACHED = 4,
  DDPD_IN_OUTPUT_KNOWN = 8,
  DDPD_IN_OUTPUT = 16,
  DDPD_FROZEN = 32,
  DDPD_REPLACED = 64,
  DDPD_IN_OPTIMIZER = 128,
  DDPD_ASSIGNED = 256
};
int ddpd_usages(ddpd_record* record, int64_t count, const int32_t* numbers);
/* Forgets what was observed since the last step was written. */
void ddpd_forget(ddpd_record* record);
/* Puts what was observed since the last step aside, and what was put aside before in its place: to
 * write another step's row in between. */
void ddpd_swap(ddpd_record* record);

/* Writes the step under way, with everything observed since the last one: a StepRecord as JSON,
 * "calls" included. */
int ddpd_step(ddpd_record* record, const char* step);
/* kind "event", "site", "fact": one object; "ddp_fields": an array. */
int ddpd_write(ddpd_record* record, const char* kind, const char* json);

/* The call log (call_log.h). `paired`: other ranks issue the same call in this group at the same
 * time. Returns the entry's number, for ddpd_call_ends. Costs no system call. */
int64_t ddpd_call_begins(ddpd_record* record, int64_t step, int paired, const char* op,
                         const char* reduce, const char* dtype, int64_t numel, const char* group,
                         const char* moment, const char* target, const char* file, int line);
void ddpd_call_ends(ddpd_record* record, int64_t number);
/* An asynchronous one, which ended when it was issued, is waited for; until it ends again. */
void ddpd_call_resumes(ddpd_record* record, int64_t number);

/* What the rank is doing now: a Phase of progress.h. Costs no system call. */
void ddpd_enter(ddpd_record* record, int phase, int64_t step);
/* The step of which the watcher asks for values (values.json in the folder names the parameters);
 * 0: none. */
int64_t ddpd_wanted_step(ddpd_record* record);

#ifdef __cplusplus
}
#endif
