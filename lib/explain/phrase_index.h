// SPDX-License-Identifier: BSD-3-Clause
// Finds many phrases in a text in one pass, however many there are.
//
// A log may have tens of megabytes, and each phrase would be a pass of its own. Phrases are looked
// up by their first four letters instead: at nearly every place of a log no phrase begins with
// those.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ddp_doctor {

class PhraseIndex {
 public:
  // `words` has four letters or more, and outlives the index.
  void add(std::string_view words, std::size_t number);

  // Calls use(number, position) for each place of a phrase, by position. Of one phrase, places do
  // not overlap.
  template <class Use>
  void each_place(std::string_view text, Use use) const {
    std::vector<std::size_t> ends(count_, 0);
    const char* letters = text.data();
    const std::uint64_t* begins = begins_.data();  // tens of millions of times
    std::uint32_t key = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      key = key << 8 | static_cast<unsigned char>(letters[i]);
      const std::uint32_t bit = (key * kSpread) >> 16;
      if ((begins[bit / 64] >> (bit % 64) & 1) == 0 || i + 1 < kKeyLetters) continue;
      const auto found = phrases_.find(key);
      if (found == phrases_.end()) continue;
      const auto at = i + 1 - kKeyLetters;
      for (const auto& [words, number] : found->second) {
        if (at < ends[number] || text.compare(at, words.size(), words) != 0) continue;
        ends[number] = at + words.size();
        use(number, at);
      }
    }
  }

 private:
  static constexpr std::size_t kKeyLetters = 4;
  static constexpr std::uint32_t kSpread = 2654435761u;  // Knuth's multiplicative hash

  std::unordered_map<std::uint32_t, std::vector<std::pair<std::string_view, std::size_t>>> phrases_;
  std::array<std::uint64_t, (1 << 16) / 64> begins_ = {};  // a bit for each key's hash
  std::size_t count_ = 0;
};

}  // namespace ddp_doctor
