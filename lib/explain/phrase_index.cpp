// SPDX-License-Identifier: BSD-3-Clause
#include "lib/explain/phrase_index.h"

#include <algorithm>

namespace ddp_doctor {

void PhraseIndex::add(std::string_view words, std::size_t number) {
  const auto key = key_of(words);
  phrases_[key].emplace_back(words, number);
  begins_.set(hash(key));
  count_ = std::max(count_, number + 1);
}

}  // namespace ddp_doctor
