// SPDX-License-Identifier: BSD-3-Clause
/* The C API through which probes in other languages announce what one rank does, and hand over its
 * tensors: ctypes in Python, which knows nothing of digests, SQLite or C++. Built as
 * libddp-doctor-probe.so, which links no torch.
 *
 * Every function may be called from any thread, events (below) one at a time. None of them raises
 * or ends the process: those that can fail return 0 for success, and otherwise ddpd_error() says
 * why, for the calling thread. Texts are UTF-8, JSON where it says so: objects whose members have
 * the names of record.h. */
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
 * "program", "details": {...}, "every", "warmup"}; the last two (schedule.h) may be missing.
 * `values_budget`: bytes of tensor values that the record may keep. Null on failure. */
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
/* A loss of the step under way, one element of `dtype`; ddpd_write_row writes the mean of them. */
int ddpd_loss_on_device(ddpd_record* record, int device, void* stream, const void* data,
                        const char* dtype);
/* Forgets what was observed since the last step was written. */
void ddpd_forget(ddpd_record* record);
/* Puts what was observed since the last step aside, and what was put aside before in its place: to
 * write another step's row in between. */
void ddpd_swap(ddpd_record* record);

/* Writes the row that ddpd_take_row took, with everything observed since the last one. A second
 * time: in its place. `probe_ns`: what the examination added; -1: as before. */
int ddpd_write_row(ddpd_record* record, int examined, int64_t probe_ns);
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

/* ---- events, in the order in which they happen (recorder.h, passes.h). They cost no system call.
 * Parameters are passed by the address of a Parameter (parameter.h), which stays where it is. */

/* The step under way, from 1; whether its tensors are examined; whether the graphs of outputs are
 * to be read in it. */
int64_t ddpd_step_number(ddpd_record* record);
int ddpd_is_recorded(ddpd_record* record);
int ddpd_reads_graphs(ddpd_record* record);
/* From now on the step under way is. */
void ddpd_examine(ddpd_record* record);
/* Backward passes so far. */
int64_t ddpd_backwards(ddpd_record* record);

/* A wrapper's constructor begins: returns its number. It has ended: `parameters` of its reducer,
 * `group` as in the call log. */
int ddpd_wrapper_begins(ddpd_record* record);
void ddpd_wrapper_made(ddpd_record* record, int wrapper, int parameters, const char* group);
/* `kind`: 0, the backward of this forward will not be reduced; 1, it will; 2, it is one without
 * gradients. */
void ddpd_forward_begins(ddpd_record* record, int wrapper, int kind);
void ddpd_forward_ends(ddpd_record* record, int wrapper);
void ddpd_forward_around(ddpd_record* record, int wrapper);
void ddpd_forward_unseen(ddpd_record* record, int wrapper, int reduced);
void ddpd_forget_forwards(ddpd_record* record);

/* At this line of the program; `what` is to be taken from local gradients. */
void ddpd_backward_begins(ddpd_record* record, const char* file, int line, int what);
/* A gradient has arrived: whether to look at it now, since it is still this rank's own. */
int ddpd_gradient_arrives(ddpd_record* record, void* parameter);
/* A gradient of the program's own making is reduced by hand in a backward: whether it is to be
 * looked at now. Whether it was. */
int ddpd_is_still_local(ddpd_record* record, const void* parameter);
int ddpd_was_local(ddpd_record* record, const void* parameter);
/* Passes::Ending. Returns whether parameters outside of reducers got gradients. */
int ddpd_backward_ends(ddpd_record* record, int retained, int raised, int reads_are_seen);
/* What that backward was to the wrapper: a sum of these, as in Passes::Backward. */
enum {
  DDPD_TOUCHED = 1,
  DDPD_SYNCHRONIZED = 2,
  DDPD_PARTIAL = 4,
  DDPD_AGAIN = 8,
  DDPD_UNSEEN = 16
};
int ddpd_backward_of(ddpd_record* record, int wrapper);
void ddpd_loss(ddpd_record* record, double loss);
/* Something that only the trace shows (docs/record.md). */
void ddpd_token(ddpd_record* record, const char* token);

/* "backward", "optimizer", "forward", "before-step" or "outside". */
const char* ddpd_moment(ddpd_record* record);
/* Whether the next collective is the first between the step's backward and its optimizer; once. */
int ddpd_first_before_step(ddpd_record* record);
/* A collective of the program begins. `log_group`: as in the call log. Returns the number for
 * ddpd_call_ends. */
int64_t ddpd_collective(ddpd_record* record, int paired, const char* op, const char* reduce,
                        const char* dtype, int64_t numel, int64_t bytes, const char* log_group,
                        const char* group, const char* moment, const char* target, const char* file,
                        int line);

/* A new optimizer: returns its number. The parameters that it holds now. */
int ddpd_optimizer(ddpd_record* record);
void ddpd_optimizer_holds(ddpd_record* record, int optimizer, int64_t count,
                          void* const* parameters);
/* Backward passes before its last step. */
int64_t ddpd_backwards_before(ddpd_record* record, int optimizer);
/* Which of `all` the optimizer's steps answer for from now on, as others hold `elsewhere`: their
 * ids go to `ids`, which has room for all. Returns how many. */
int64_t ddpd_cover(ddpd_record* record, int optimizer, int64_t elsewhere_count,
                   void* const* elsewhere, int64_t count, void* const* all, int32_t* ids);
/* How those parameters were used in the step that ends, as far as events tell it. */
void ddpd_usages(ddpd_record* record, int optimizer);
/* Whether it is not inside another. */
int ddpd_step_begins(ddpd_record* record);
void ddpd_gradients_taken(ddpd_record* record);
int ddpd_step_ends(ddpd_record* record);
/* What the step did, for ddpd_write_row. The row of step 0 has the optimizer -1. */
typedef struct {
  int64_t started_ns; /* CLOCK_REALTIME */
  int64_t duration_ns;
  double scale; /* the gradient scaler's; NaN: none */
  int32_t optimizer;
  int32_t skipped;
} ddpd_row;
void ddpd_take_row(ddpd_record* record, const ddpd_row* row);
void ddpd_step_closed(ddpd_record* record, int optimizer);

#ifdef __cplusplus
}
#endif
