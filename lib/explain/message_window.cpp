// SPDX-License-Identifier: BSD-3-Clause
#include "lib/explain/message_window.h"

#include <charconv>

namespace ddp_doctor {

using std::string_view;

std::optional<long long> number_in(string_view text) {
  long long number = 0;
  if (text.starts_with('-')) return {};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end == text.data()) return {};
  return number;
}

std::optional<int> small_number_in(string_view text) {
  constexpr long long kMax = 100'000'000;
  const auto number = number_in(text);
  return number && *number <= kMax ? std::optional(static_cast<int>(*number)) : std::nullopt;
}

std::optional<int> number_after(string_view text, string_view words) {
  const auto at = text.rfind(words);
  return at == string_view::npos ? std::nullopt : small_number_in(text.substr(at + words.size()));
}

string_view last_of(string_view text, std::size_t letters) {
  return text.substr(text.size() - std::min(text.size(), letters));
}

string_view until(string_view text, string_view words) { return text.substr(0, text.find(words)); }

string_view between(string_view text, string_view begin, string_view end) {
  const auto at = text.find(begin);
  if (at == string_view::npos) return {};
  text.remove_prefix(at + begin.size());
  const auto stop = text.find(end);
  return stop == string_view::npos ? string_view() : text.substr(0, stop);
}

std::optional<int> rank_of(const LogStream& stream, std::optional<int> rank_in_text) {
  return stream.rank && !(stream.of_one_node && rank_in_text) ? stream.rank : rank_in_text;
}

}  // namespace ddp_doctor
