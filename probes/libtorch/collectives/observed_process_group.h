// SPDX-License-Identifier: BSD-3-Clause
// A process group that reports the program's own collectives to the examination:
//
//   auto group = ddp_doctor::observed(ddp_doctor::make_gloo_process_group({...}));
//   group->allreduce(gradients)->wait();
//
// All calls are forwarded to the underlying group. A wrapper constructed with it uses the
// underlying group, because the wrapper's collectives are not hand-written. Without an Examination,
// a collective costs one pointer check.
#pragma once

#include <ddp_doctor/torch_compat.h>

#include <vector>

namespace ddp_doctor {

class ObservedProcessGroup : public c10d::ProcessGroup {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;

  // `ranks`: the global ranks of a subgroup. Not needed for a group of all ranks.
  explicit ObservedProcessGroup(ProcessGroupPtr inner, std::vector<int> ranks = {});

  const ProcessGroupPtr& inner() const { return inner_; }
  const std::vector<int>& ranks() const { return ranks_; }

  const std::string getBackendName() const override { return inner_->getBackendName(); }
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs,
                   const c10d::AllToAllOptions& options) override;
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;

 private:
  template <class Call>
  WorkPtr observe(const char* op, const std::string& reduce, const Tensors& tensors,
                  const Call& call) const;

  ProcessGroupPtr inner_;
  std::vector<int> ranks_;
};

ProcessGroupPtr observed(ProcessGroupPtr group, std::vector<int> ranks = {});
// The group underlying an observed one; any other group unchanged.
ProcessGroupPtr unobserved(ProcessGroupPtr group);
// Global ranks; empty if unknown.
std::vector<int> ranks_of_group(const ProcessGroupPtr& group, int world_size);

}  // namespace ddp_doctor
