// SPDX-License-Identifier: BSD-3-Clause
#include "lib/explain/pasted_log.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <map>

namespace ddp_doctor {
namespace {

using std::string_view;

struct Label {
  int rank;
  bool of_one_node;
  friend auto operator<=>(const Label&, const Label&) = default;
};

bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

bool drop_prefix(string_view& text, string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

void drop_blanks(string_view& text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '>')) text.remove_prefix(1);
}

std::optional<int> take_number(string_view& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end == text.data() || number < 0) return {};
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

// [rank1]: and [default1]:
std::optional<Label> torch_label(string_view& text) {
  for (const auto& [word, of_one_node] : {std::pair("[rank", false), std::pair("[default", true)}) {
    string_view rest = text;
    if (!drop_prefix(rest, word)) continue;
    const auto rank = take_number(rest);
    if (!rank || !drop_prefix(rest, "]")) return {};
    drop_prefix(rest, ":");
    text = rest;
    return Label{*rank, of_one_node};
  }
  return {};
}

// [1,0]<stderr>: and [host@1,0]<stderr>:, job number before rank
std::optional<Label> mpi_label(string_view& text) {
  string_view rest = text;
  if (!drop_prefix(rest, "[")) return {};
  const auto host = rest.substr(0, 80).find_first_of("@] ");
  if (host != string_view::npos && rest[host] == '@') rest.remove_prefix(host + 1);
  if (!take_number(rest) || !drop_prefix(rest, ",")) return {};
  const auto rank = take_number(rest);
  if (!rank || !drop_prefix(rest, "]")) return {};
  if (drop_prefix(rest, "<")) {
    const auto end = rest.substr(0, 16).find('>');
    if (end == string_view::npos) return {};
    rest.remove_prefix(end + 1);
  }
  if (!drop_prefix(rest, ":")) return {};
  text = rest;
  return Label{*rank, false};
}

// The length of what may come before a label: a time, a line number, a log level, Ray's process
// name. 0 for anything else.
std::size_t length_of_preamble(string_view text) {
  constexpr std::size_t kMax = 60;
  if (text.empty()) return 0;
  if (text.front() == '[' || text.front() == '(') {
    const auto end = text.substr(0, kMax).find(text.front() == '[' ? ']' : ')');
    if (end == string_view::npos) return 0;
    const auto inside = text.substr(1, end - 1);
    const bool known = text.front() == '('
                           ? inside.find("pid=") != string_view::npos
                           : inside.find_first_not_of("0123456789 :.,TZ+-/") == string_view::npos;
    return known ? end + 1 : 0;
  }
  const auto end = std::min(text.find(' '), text.find('['));
  const auto word = text.substr(0, end);
  if (word.empty() || word.size() > kMax) return 0;
  for (const string_view level : {"INFO", "WARNING", "ERROR", "stderr", "stdout", "-", "|"})
    if (word == level || word == std::string(level) + ":") return word.size();
  // TorchX: role and replica, "trainer/0"
  const auto slash = word.rfind('/');
  if (slash != string_view::npos && slash > 0 && slash + 1 < word.size() &&
      std::isalpha(static_cast<unsigned char>(word.front())) != 0 &&
      std::all_of(word.begin() + static_cast<std::ptrdiff_t>(slash) + 1, word.end(), is_digit))
    return word.size();
  const bool is_time = word.find_first_not_of("0123456789:.,TZEWIF+-/") == string_view::npos &&
                       std::any_of(word.begin(), word.end(), is_digit);
  return is_time ? word.size() : 0;
}

// Removes a label and the text before it. Does nothing without a label: "[1]: params[0]" is
// PyTorch's own text.
std::optional<Label> take_label(string_view& line) {
  string_view rest = line;
  for (int words = 0; words < 6; ++words) {
    drop_blanks(rest);
    auto label = torch_label(rest);
    if (!label) label = mpi_label(rest);
    if (label) {
      // torchrun's tee puts its label before PyTorch's, and Ray or a nested launcher a second one.
      for (auto next = std::optional(label); next; next = torch_label(rest)) {
        if (!next->of_one_node || label->of_one_node) label = next;
        line = rest;
        drop_blanks(rest);
      }
      return label;
    }
    const auto preamble = length_of_preamble(rest);
    if (preamble == 0) return {};
    rest.remove_prefix(preamble);
  }
  return {};
}

// 1: from srun -l
std::optional<Label> take_task(string_view& line) {
  string_view rest = line;
  drop_blanks(rest);
  const auto task = take_number(rest);
  if (!task || !drop_prefix(rest, ":") || !(rest.empty() || rest.front() == ' ')) return {};
  line = rest;
  return Label{*task, false};
}

template <class Use>
void each_line(string_view text, Use use) {
  std::size_t number = 0;
  while (!text.empty()) {
    const auto end = text.find('\n');
    use(text.substr(0, end), ++number);
    text.remove_prefix(end == string_view::npos ? text.size() : end + 1);
  }
}

// Whether nearly every line starts with a task number. Numbers that count up are line numbers
// instead.
bool has_tasks(string_view text) {
  std::size_t lines = 0, tasks = 0, steps_of_one = 0;
  int last = -2;
  each_line(text, [&](string_view line, std::size_t) {
    if (line.find_first_not_of(" \t\r") == string_view::npos) return;
    ++lines;
    if (const auto task = take_task(line)) {
      ++tasks;
      steps_of_one += task->rank == last + 1 ? 1 : 0;
      last = task->rank;
    }
  });
  return tasks > 0 && tasks * 10 >= lines * 9 && (lines < 4 || steps_of_one * 2 < lines);
}

// Removes colors and replaces control characters by spaces.
void clean(string_view piece, std::string& out) {
  out.clear();
  for (std::size_t i = 0; i < piece.size(); ++i) {
    const auto letter = static_cast<unsigned char>(piece[i]);
    if (letter == 0x1b && i + 1 < piece.size() && piece[i + 1] == '[') {
      i += 2;
      while (i < piece.size() && (piece[i] < 0x40 || piece[i] > 0x7e)) ++i;
    } else {
      out += letter < 0x20 || letter == 0x7f ? ' ' : piece[i];
    }
  }
}

void append(LogStream& stream, string_view piece, std::size_t number) {
  const std::size_t begin = stream.text.size();
  bool blank = true;
  for (const char letter : piece) {
    if (letter != ' ') {
      stream.text += letter;
    } else if (!blank) {
      stream.text += ' ';
    }
    blank = letter == ' ';
  }
  if (stream.text.size() == begin) return;
  if (!blank) stream.text += ' ';
  stream.lines.push_back({begin, number});
}

// The first piece of a line: progress bars return to the start of the line with \r, and logs in
// JSON contain the two characters \n. Returns its length with the separator, and without.
std::pair<std::size_t, std::size_t> piece_of(string_view line) {
  for (auto end = line.find_first_of("\r\\"); end != string_view::npos;
       end = line.find_first_of("\r\\", end + 1)) {
    if (line[end] == '\r') return {end + 1, end};
    if (line.substr(end, 2) == "\\n") return {end + 2, end};
  }
  return {line.size(), line.size()};
}

}  // namespace

std::size_t LogStream::line_at(std::size_t position) const {
  const auto after =
      std::upper_bound(lines.begin(), lines.end(), position,
                       [](std::size_t p, const Line& line) { return p < line.begin; });
  return static_cast<std::size_t>(after - lines.begin()) - 1;
}

std::string_view LogStream::line(std::size_t index) const {
  const std::size_t end = index + 1 < lines.size() ? lines[index + 1].begin : text.size();
  return string_view(text).substr(lines[index].begin, end - lines[index].begin);
}

PastedLog read_log(std::string_view text) {
  std::map<Label, LogStream> streams;
  const bool tasks = has_tasks(text);
  PastedLog log;
  std::string cleaned;
  each_line(text, [&](string_view line, std::size_t number) {
    log.lines = number;
    constexpr Label kNone = {-1, false};
    Label label = kNone;
    while (!line.empty()) {
      const auto [whole, length] = piece_of(line);
      clean(line.substr(0, length), cleaned);
      line.remove_prefix(whole);
      string_view piece = cleaned;
      auto own = take_label(piece);
      if (!own && tasks) own = take_task(piece);
      if (own) label = *own;
      append(streams[label], piece, number);
    }
  });
  for (auto& [label, stream] : streams) {
    if (stream.lines.empty()) continue;
    if (label.rank >= 0) stream.rank = label.rank;
    stream.of_one_node = label.of_one_node;
    log.streams.push_back(std::move(stream));
  }
  return log;
}

std::optional<std::string> program_in(const PastedLog& log) {
  constexpr std::array kNotTheUsers = {"site-packages", "dist-packages", "/bin/", "lib/python",
                                       "<"};
  constexpr string_view kFile = "File \"";
  std::optional<std::string> program;
  std::size_t first = 0;
  for (const auto& stream : log.streams) {
    const string_view text = stream.text;
    for (auto at = text.find(", in <module>"); at != string_view::npos;
         at = text.find(", in <module>", at + 1)) {
      const auto before =
          text.substr(at - std::min<std::size_t>(at, 300), std::min<std::size_t>(at, 300));
      const auto begin = before.rfind(kFile);
      if (begin == string_view::npos) continue;
      auto file = before.substr(begin + kFile.size());
      file = file.substr(0, file.find('"'));
      const bool plain = std::all_of(file.begin(), file.end(), [](unsigned char letter) {
        return std::isalnum(letter) != 0 || letter == '/' || letter == '.' || letter == '_' ||
               letter == '-';
      });
      const bool library = std::any_of(kNotTheUsers.begin(), kNotTheUsers.end(), [&](auto* words) {
        return file.find(words) != string_view::npos;
      });
      const auto number = stream.number_at(at);
      if (!plain || library || file.empty() || (program && number >= first)) continue;
      program = std::string(file);
      first = number;
    }
  }
  return program;
}

}  // namespace ddp_doctor
