// SPDX-License-Identifier: BSD-3-Clause
// An actor and a critic that learn from episodes of a small game, with an optimizer each, and
// gradients that the author averages over the ranks by hand.
//
// The bug: the all-reduce goes over the actor's parameters only. Every rank has a critic of its
// own.
#include <ATen/CPUGeneratorImpl.h>
#include <ddp_doctor/examination.h>
#include <ddp_doctor/observed.h>
#include <ddp_doctor/observed_process_group.h>

#include <iostream>

#include "examples/cpp/data.h"

namespace {

struct PolicyImpl : torch::nn::Module {
  explicit PolicyImpl(std::int64_t outputs) {
    hidden = register_module("hidden", torch::nn::Linear(6, 24));
    output = register_module("output", torch::nn::Linear(24, outputs));
  }
  at::Tensor forward(const at::Tensor& state) { return output(torch::tanh(hidden(state))); }
  torch::nn::Linear hidden{nullptr}, output{nullptr};
};
TORCH_MODULE(Policy);

// A point that the agent pushes left or right, and that should come to rest at the origin.
struct Episode {
  at::Tensor states, actions, returns;
};

Episode play(Policy& actor, const at::Generator& generator) {
  torch::NoGradGuard no_grad;
  std::vector<at::Tensor> states, actions;
  std::vector<double> rewards;
  at::Tensor state = torch::randn({6}, generator);
  for (int turn = 0; turn < 12; ++turn) {
    const at::Tensor action =
        torch::multinomial(torch::softmax(actor(state), 0), 1, true, generator);
    states.push_back(state);
    actions.push_back(action);
    state = 0.9 * state + 0.1 * (2.0 * action.to(torch::kFloat) - 1.0);
    rewards.push_back(-state.pow(2).sum().item<double>());
  }
  for (size_t turn = rewards.size() - 1; turn > 0; --turn) rewards[turn - 1] += 0.9 * rewards[turn];
  return {torch::stack(states), torch::cat(actions),
          torch::tensor(rewards, torch::kDouble).to(torch::kFloat)};
}

void average_gradients(const ddp_doctor::ProcessGroupPtr& group, torch::nn::Module& module) {
  for (const auto& parameter : module.parameters()) {
    std::vector<at::Tensor> gradient{parameter.grad()};
    group->allreduce(gradient)->wait();
    gradient.front().div_(group->getSize());
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bool healthy = example::is_healthy(argc, argv);
  const auto self = ddp_doctor::rendezvous_from_environment();
  const auto group = ddp_doctor::observed(ddp_doctor::make_gloo_process_group(self));
  ddp_doctor::Examination examination(group);

  torch::manual_seed(7);
  Policy actor(2), critic(1);
  examination.attach(actor, "actor");
  examination.attach(critic, "critic");
  ddp_doctor::Observed<torch::optim::Adam> actor_optimizer(actor->parameters(), 1e-2);
  ddp_doctor::Observed<torch::optim::Adam> critic_optimizer(critic->parameters(), 1e-2);
  // Each rank plays its own episodes.
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(100 + self.rank);
  double last = 0;
  for (int episode = 0; episode < 6; ++episode) {
    const Episode seen = play(actor, generator);
    const at::Tensor values = critic(seen.states).squeeze(1);
    const at::Tensor advantage = (seen.returns - values).detach();
    const at::Tensor chosen =
        torch::log_softmax(actor(seen.states), 1).gather(1, seen.actions.unsqueeze(1)).squeeze(1);
    const at::Tensor loss = -(chosen * advantage).mean() + (values - seen.returns).pow(2).mean();
    actor_optimizer.zero_grad();
    critic_optimizer.zero_grad();
    loss.backward();
    average_gradients(group, *actor);
    if (healthy) average_gradients(group, *critic);
    last = loss.item<double>();
    examination.loss(last);
    actor_optimizer.step();
    critic_optimizer.step();
  }
  example::save_checkpoint(self, "actor.pt",
                           [&](const std::string& file) { torch::save(actor, file); });
  std::cout << "rank " << self.rank << ": loss " << last << std::endl;
}
