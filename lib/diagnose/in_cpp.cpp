// SPDX-License-Identifier: BSD-3-Clause
#include "lib/diagnose/in_cpp.h"

#include <utility>

namespace ddp_doctor {
namespace {

struct Phrase {
  const char* python;
  const char* cpp;  // empty: LibTorch has nothing of the kind
};

// The longer ones first: each is replaced before those below are looked for.
constexpr Phrase kPhrases[] = {
    {"model = DistributedDataParallel(model)",
     "ddp_doctor::DistributedDataParallel ddp(model, process_group)"},
    {"DistributedDataParallel(model)", "DistributedDataParallel(model, process_group)"},
    {"ddp(x), instead of ddp.module(x)", "ddp(input), instead of ddp.module()->forward(input)"},
    {"(model.module(x))", "(ddp.module()->forward(input))"},
    {"`with model.join():`", "`ddp.join(loop)`"},
    {"model.parameters()", "model->parameters()"},
    {"p.grad = torch.zeros_like(p)", "p.mutable_grad() = torch::zeros_like(p)"},
    {"back into .grad", "back into grad()"},
    {"use load_state_dict without assign=True, or parameter.data.copy_()",
     "copy them into the parameters: parameter.copy_(value) under torch::NoGradGuard"},
    {"called load_state_dict", "loaded weights"},
    {"load_state_dict changed them", "loaded weights changed them"},
    {"Convert the model before wrapping it: "
     "torch.nn.SyncBatchNorm.convert_sync_batchnorm(model). Or use",
     "LibTorch has no SyncBatchNorm: use"},
    {", use SyncBatchNorm, or", " or"},
    {", or use SyncBatchNorm", ""},
    {"use a DistributedSampler or split_dataset_by_node, or select by rank and world size in an "
     "IterableDataset (samplers do not apply to it)",
     "use torch::data::samplers::DistributedRandomSampler or DistributedSequentialSampler, or "
     "select by rank and world size"},
    {"DistributedSampler,", "torch::data::samplers::DistributedRandomSampler,"},
    {"torch.nn.utils.", "torch::nn::utils::"},
    {"torch.autograd.grad", "torch::autograd::grad"},
    {"torch.autograd.set_detect_anomaly(True)", "torch::autograd::AnomalyMode::set_enabled(true)"},
    {"zero_grad(set_to_none=True)", "zero_grad(/*set_to_none=*/true)"},
    {"requires_grad=False", "requires_grad_(false)"},
    {"requires_grad_(False)", "requires_grad_(false)"},
    {"=True", " = true"},
    {"=False", " = false"},
};

}  // namespace

std::string in_cpp(std::string text) {
  for (const auto& [python, cpp] : kPhrases) {
    const std::string phrase = python, other = cpp;
    for (auto at = text.find(phrase); at != std::string::npos;
         at = text.find(phrase, at + other.size()))
      text.replace(at, phrase.size(), other);
  }
  return text;
}

}  // namespace ddp_doctor
