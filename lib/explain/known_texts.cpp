// SPDX-License-Identifier: BSD-3-Clause
#include "lib/explain/known_texts.h"

namespace ddp_doctor {

std::vector<const KnownText*> known_texts() {
  std::vector<const KnownText*> all;
  for (const auto texts :
       {constructor_texts(), reducer_texts(), collective_texts(), warning_texts(), nccl_texts(),
        watchdog_texts(), process_group_texts(), launch_texts(), fsdp_texts(), fully_shard_texts(),
        dtensor_texts(), pipelining_texts(), checkpoint_texts(), deepspeed_texts(),
        megatron_texts()})
    all.insert(all.end(), texts.begin(), texts.end());
  return all;
}

}  // namespace ddp_doctor
