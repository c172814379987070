// SPDX-License-Identifier: BSD-3-Clause
#include "lib/explain/phrase_index.h"

#include <algorithm>

namespace ddp_doctor {

void PhraseIndex::add(std::string_view words, std::size_t number) {
  std::uint32_t key = 0;
  for (const char letter : words.substr(0, kKeyLetters))
    key = key << 8 | static_cast<unsigned char>(letter);
  phrases_[key].emplace_back(words, number);
  const std::uint32_t bit = (key * kSpread) >> 16;
  begins_[bit / 64] |= std::uint64_t{1} << (bit % 64);
  count_ = std::max(count_, number + 1);
}

}  // namespace ddp_doctor
