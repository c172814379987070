// SPDX-License-Identifier: BSD-3-Clause
// Fields about parameters.
#include "lib/explain/message_fields.h"

#include <algorithm>

#include "lib/explain/known_texts.h"
#include "lib/explain/message_window.h"
#include "lib/explain/wording/errors.h"
#include "lib/explain/wording/phrases.h"

namespace ddp_doctor {
namespace {

using std::string_view;

bool is_list(string_view line) {
  return line.find_first_not_of("0123456789 ") == string_view::npos &&
         line.find_first_of("0123456789") != string_view::npos;
}

// The end of the list that starts at `begin`: the end of its line, or of the following lines if a
// terminal wrapped it. Indices ascend. The list ends before `next`, the next list.
std::size_t end_of_list(const LogStream& stream, std::size_t begin, std::size_t next) {
  auto index = stream.line_at(begin);
  if (next < stream.lines[index].begin + stream.line(index).size()) return next;
  const auto last_index = [](string_view line) {
    line = line.substr(0, line.find_last_not_of(' ') + 1);
    return number_in(line.substr(line.find_last_of(": ") + 1)).value_or(-1);
  };
  while (index + 1 < stream.lines.size() && is_list(stream.line(index + 1)) &&
         number_in(stream.line(index + 1)).value_or(-1) > last_index(stream.line(index))) {
    ++index;
  }
  return std::min(next, stream.lines[index].begin + stream.line(index).size());
}

// "c.bias, c.weight": a name followed by a comma is not the last.
void take_names(string_view list, RankFields& fields) {
  for (bool more = true; more && !list.empty();) {
    string_view name = until(list, " ");
    list.remove_prefix(std::min(list.size(), name.size() + 1));
    more = name.ends_with(',');
    if (more) name.remove_suffix(1);
    if (name.ends_with("...")) {
      fields.cut = true;
    } else if (!name.empty()) {
      fields.names.emplace_back(name);
    }
  }
}

// Nothing if the message has no such field, or one that is too long to be it.
string_view value_of(const MessageField& field, const LogStream& stream, std::size_t at) {
  constexpr std::size_t kWindow = 700, kValue = 160;
  const string_view text = stream.text;
  if (field.after.empty()) {
    string_view word = last_of(text.substr(0, at), kValue);
    while (!word.empty() && string_view(" :'`])").find(word.back()) != string_view::npos)
      word.remove_suffix(1);
    word.remove_prefix(word.find_last_of(" '`[(") + 1);
    return word.ends_with("Error") ? string_view() : word;
  }
  string_view window = text.substr(at, kWindow);
  const auto begin = window.find(field.after);
  if (begin == string_view::npos) return {};
  const auto from = begin + field.after.size();
  window.remove_prefix(from);
  auto end = window.find(field.until);
  if (field.until.empty()) end = std::min(window.find_first_of(" ,;)]}'\"`"), window.size());
  if (field.until == kEndOfLine && !window.empty()) {
    const auto line = stream.line_at(at + from);
    end = std::min(kValue, stream.lines[line].begin + stream.line(line).size() - (at + from));
  }
  if (end == string_view::npos || end > kValue) return {};
  string_view value = window.substr(0, end);
  while (!value.empty() && string_view(" .:").find(value.back()) != string_view::npos)
    value.remove_suffix(1);
  // "{fqn}" of a source line, and not a set.
  const bool placeholder = value.starts_with('{') && value.find(',') == string_view::npos;
  return placeholder ? string_view() : value;
}

void take_parameter(RankFields& fields, std::optional<int> index, string_view name) {
  if (index) fields.indices.push_back(*index);
  if (!name.empty()) fields.names.emplace_back(name);
}

}  // namespace

const std::string* RankFields::figure(const std::string& what) const {
  const auto found = std::find_if(figures.begin(), figures.end(),
                                  [&](const auto& figure) { return figure.first == what; });
  return found == figures.end() ? nullptr : &found->second;
}

void RankFields::note(const std::string& what, std::string value) {
  if (!value.empty() && figure(what) == nullptr) figures.emplace_back(what, std::move(value));
}

RankFields& MessageFields::by(std::optional<int> rank) {
  RankFields& fields = ranks[rank.value_or(-1)];
  fields.rank = rank;
  return fields;
}

void read_fields(std::span<const MessageField> fields, const LogStream& stream,
                 std::span<const std::size_t> places, MessageFields& facts) {
  constexpr std::size_t kPlaces = 100;  // an error that repeats says the same
  for (const auto at : places.first(std::min(places.size(), kPlaces))) {
    // The line of a traceback that raises it: f"Missing key in checkpoint state_dict: {fqn}."
    const auto before = last_of(string_view(stream.text).substr(0, at), 2);
    if (before == "f\"" || before == "f'") continue;
    for (const auto& field : fields) {
      const std::string value(value_of(field, stream, at));
      if (value.empty()) continue;
      if (field.figure == kParameterName) {
        facts.by(stream.rank).names.push_back(value);
      } else {
        facts.by(stream.rank).note(std::string(field.figure), value);
      }
    }
  }
}

void read_nothing(const LogStream&, MessageFields&) {}

void read_unused(const LogStream& stream, MessageFields& facts) {
  const string_view text = stream.text;
  constexpr string_view kWhich = phrases::kWithoutGradient;
  for (auto at = text.find(kWhich); at != string_view::npos; at = text.find(kWhich, at + 1)) {
    const auto begin = at + kWhich.size();
    const auto rank_in_text = small_number_in(text.substr(begin));
    if (!rank_in_text) continue;
    RankFields& fields = facts.by(rank_of(stream, rank_in_text));
    const auto before = text.substr(0, at);
    if (before.ends_with("Parameter indices")) {
      const auto end = std::min(end_of_list(stream, begin, text.find(kWhich, begin)), text.size());
      const auto list = text.substr(begin, end - begin);
      const auto indices = indices_listed(list);
      fields.indices.insert(fields.indices.end(), indices.begin(), indices.end());
      fields.cut |= list.find("...") != string_view::npos;
    } else if (const auto colon = text.substr(begin, 14).find(": "); colon != string_view::npos) {
      take_names(text.substr(begin + colon + 2), fields);
    }
  }
  each_window(stream, " did not get gradient in backwards pass",
              [&](string_view before, string_view) {
                const auto at = before.rfind("] Parameter: ");
                if (at == string_view::npos) return;
                const auto rank = rank_of(stream, number_after(before.substr(0, at), "[Rank "));
                take_parameter(facts.by(rank), {}, before.substr(at + 13));
              });
}

void read_marked_unused(const LogStream& stream, MessageFields& facts) {
  read_unused(stream, facts);
  each_window(stream, " is marked as unused", [&](string_view before, string_view) {
    const auto at = before.rfind("Parameter ");
    if (at == string_view::npos) return;
    const auto rank = rank_of(stream, number_after(before.substr(0, at), "[Rank "));
    const auto parameter = before.substr(at + 10);
    take_parameter(facts.by(rank), number_after(parameter, " at index "),
                   until(parameter, " at index "));
  });
}

void read_ready_twice(const LogStream& stream, MessageFields& facts) {
  each_window(stream, " has been marked as ready twice", [&](string_view before, string_view) {
    const auto at = before.rfind(phrases::kParameterAtIndex);
    if (at == string_view::npos) return;
    const auto parameter = before.substr(at);
    const auto name = parameter.find(" with name ");
    take_parameter(facts.by(rank_of(stream, {})), index_marked_twice(parameter),
                   name == string_view::npos ? string_view() : parameter.substr(name + 11));
  });
}

void read_counts(const LogStream& stream, MessageFields& facts) {
  each_window(stream, "expects same model across all ranks, but ",
              [&](string_view, string_view after) {
                for (const string_view who : {"Rank ", "while rank "}) {
                  const auto at = after.find(who);
                  if (at == string_view::npos) continue;
                  const auto rest = after.substr(at + who.size());
                  const auto rank = number_after(after.substr(0, at + who.size() + 9), who);
                  const auto has = between(rest, " has ", " params");
                  if (!rank || has.empty()) continue;
                  const auto count = has.substr(has.find_last_of(' ') + 1);
                  facts.by(rank).note("trainable parameters", std::string(count));
                }
              });
}

void read_shapes(const LogStream& stream, MessageFields& facts) {
  each_window(stream, "] in this process with ", [&](string_view before, string_view after) {
    const auto open = before.find_last_of('[');
    if (open == string_view::npos) return;
    // "[1]: params[0]", without the rank in older versions; "replicas[0][0]" in still older ones
    const auto label = before.rfind("]: params[");
    std::optional<int> rank_in_text;
    if (label != string_view::npos && label + 9 == open)
      rank_in_text = number_after(before.substr(0, label), "[");
    RankFields& fields = facts.by(rank_of(stream, rank_in_text));
    take_parameter(fields, number_after(before, "["), {});
    const auto what = until(after, " ");
    fields.note(std::string(what), std::string(between(after, " ", " appears")));
    fields.note("differ in", std::string(between(after, "not to match ", " ")));
  });
}

void read_version(const LogStream& stream, MessageFields& facts) {
  each_window(stream, "modified by an inplace operation", [&](string_view, string_view after) {
    RankFields& fields = facts.by(stream.rank);
    if (const auto tensor = between(after, ": [", "]]"); !tensor.empty())
      fields.note("tensor", std::string(tensor) + "]");
    fields.note("version", std::string(between(after, "is at version ", " instead")));
  });
}

}  // namespace ddp_doctor
