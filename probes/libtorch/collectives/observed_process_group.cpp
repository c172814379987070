// SPDX-License-Identifier: BSD-3-Clause
#include "probes/libtorch/collectives/observed_process_group.h"

#include <numeric>

#include "probes/libtorch/ddp/observer.h"

namespace ddp_doctor {
namespace {

using WorkPtr = ObservedProcessGroup::WorkPtr;

class ObservedWork : public c10d::Work {
 public:
  ObservedWork(WorkPtr inner, std::shared_ptr<TrainingObserver> observer, std::int64_t number)
      : inner_(std::move(inner)), observer_(std::move(observer)), number_(number) {}

  bool isCompleted() override { return inner_->isCompleted(); }
  bool isSuccess() const override { return inner_->isSuccess(); }
  std::exception_ptr exception() const override { return inner_->exception(); }
  int sourceRank() const override { return inner_->sourceRank(); }
  std::vector<at::Tensor> result() override { return inner_->result(); }
  void synchronize() override { inner_->synchronize(); }
  void abort() override { inner_->abort(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return inner_->getFuture(); }

  bool wait(std::chrono::milliseconds timeout) override {
    observer_->collective_resumes(number_);
    struct Ends {
      ObservedWork& work;
      ~Ends() { work.observer_->collective_ends(work.number_); }
    } ends{*this};
    return inner_->wait(timeout);
  }

 private:
  WorkPtr inner_;
  std::shared_ptr<TrainingObserver> observer_;
  std::int64_t number_;
};

// As torch.distributed names it.
std::string name_of(const c10d::ReduceOp& op) {
  constexpr const char* kNames[] = {"sum", "avg", "product", "min", "max", "band", "bor", "bxor"};
  const auto index = static_cast<std::size_t>(c10d::ReduceOp::RedOpType(op));
  return index < std::size(kNames) ? kNames[index] : "premul_sum";
}

}  // namespace

ObservedProcessGroup::ObservedProcessGroup(ProcessGroupPtr inner, std::vector<int> ranks)
    : ProcessGroup(inner->getRank(), inner->getSize()),
      inner_(std::move(inner)),
      ranks_(std::move(ranks)) {
  adopt_backends(*this, inner_);
}

template <class Call>
WorkPtr ObservedProcessGroup::observe(const char* op, const std::string& reduce,
                                      const Tensors& tensors, const Call& call) const {
  const auto observer = training_observer();
  if (observer == nullptr) return call();
  const auto number = observer->collective_begins(op, reduce, tensors, ranks_);
  struct Ends {
    TrainingObserver& observer;
    std::int64_t number;
    ~Ends() { observer.collective_ends(number); }
  } ends{*observer, number};
  WorkPtr work = call();
  if (!work) return work;
  return c10::make_intrusive<ObservedWork>(std::move(work), observer, number);
}

WorkPtr ObservedProcessGroup::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  return observe("broadcast", "", tensors, [&] { return inner_->broadcast(tensors, options); });
}

WorkPtr ObservedProcessGroup::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  return observe("all_reduce", name_of(options.reduceOp), tensors,
                 [&] { return inner_->allreduce(tensors, options); });
}

WorkPtr ObservedProcessGroup::allreduce_coalesced(Tensors& tensors,
                                                  const c10d::AllreduceCoalescedOptions& options) {
  return observe("all_reduce_coalesced", name_of(options.reduceOp), tensors,
                 [&] { return inner_->allreduce_coalesced(tensors, options); });
}

WorkPtr ObservedProcessGroup::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  return observe("reduce", name_of(options.reduceOp), tensors,
                 [&] { return inner_->reduce(tensors, options); });
}

WorkPtr ObservedProcessGroup::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                        const c10d::AllgatherOptions& options) {
  return observe("all_gather", "", inputs,
                 [&] { return inner_->allgather(outputs, inputs, options); });
}

WorkPtr ObservedProcessGroup::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                     const c10d::GatherOptions& options) {
  return observe("gather", "", inputs, [&] { return inner_->gather(outputs, inputs, options); });
}

WorkPtr ObservedProcessGroup::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                      const c10d::ScatterOptions& options) {
  return observe("scatter", "", outputs, [&] { return inner_->scatter(outputs, inputs, options); });
}

WorkPtr ObservedProcessGroup::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                             const c10d::ReduceScatterOptions& options) {
  return observe("reduce_scatter", name_of(options.reduceOp), outputs,
                 [&] { return inner_->reduce_scatter(outputs, inputs, options); });
}

WorkPtr ObservedProcessGroup::alltoall(Tensors& outputs, Tensors& inputs,
                                       const c10d::AllToAllOptions& options) {
  return observe("all_to_all", "", inputs,
                 [&] { return inner_->alltoall(outputs, inputs, options); });
}

WorkPtr ObservedProcessGroup::send(Tensors& tensors, int to, int tag) {
  return observe("send", "", tensors, [&] { return inner_->send(tensors, to, tag); });
}

WorkPtr ObservedProcessGroup::recv(Tensors& tensors, int from, int tag) {
  return observe("recv", "", tensors, [&] { return inner_->recv(tensors, from, tag); });
}

WorkPtr ObservedProcessGroup::barrier(const c10d::BarrierOptions& options) {
  return observe("barrier", "", {}, [&] { return inner_->barrier(options); });
}

ProcessGroupPtr observed(ProcessGroupPtr group, std::vector<int> ranks) {
  return c10::make_intrusive<ObservedProcessGroup>(std::move(group), std::move(ranks));
}

ProcessGroupPtr unobserved(ProcessGroupPtr group) {
  const auto* given = dynamic_cast<ObservedProcessGroup*>(group.get());
  return given == nullptr ? group : given->inner();
}

std::vector<int> ranks_of_group(const ProcessGroupPtr& group, int world_size) {
  if (group->getSize() == world_size) {
    std::vector<int> ranks(static_cast<std::size_t>(world_size));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }
  const auto* given = dynamic_cast<ObservedProcessGroup*>(group.get());
  return given == nullptr ? std::vector<int>{} : given->ranks();
}

}  // namespace ddp_doctor
