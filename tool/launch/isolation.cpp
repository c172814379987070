// SPDX-License-Identifier: BSD-3-Clause
#include "tool/launch/isolation.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "lib/error.h"
#include "lib/log.h"
#include "tool/launch/namespace.h"
#include "tool/launch/scratch_folder.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxCopied = std::int64_t{1} << 30;
constexpr std::size_t kMaxFolders = 16;

bool lies_in(const fs::path& path, const fs::path& folder) {
  const auto [end, _] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return end == folder.end();
}

// Not a folder of files, or one that nothing can be mounted over.
bool is_system(const fs::path& folder) {
  return folder == folder.root_path() || lies_in(folder, "/proc") || lies_in(folder, "/sys") ||
         (lies_in(folder, "/dev") && !lies_in(folder, "/dev/shm"));
}

// Installed software, which a training does not write: what a virtual environment links to, for
// one. Root could.
bool is_installed(const fs::path& path) {
  constexpr const char* kRoots[] = {"/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/nix"};
  return std::any_of(std::begin(kRoots), std::end(kRoots),
                     [&](const char* root) { return lies_in(path, root); });
}

bool lies_in_virtual_environment(const fs::path& folder, const fs::path& path) {
  std::error_code failure;
  for (fs::path above = path.parent_path(); !above.empty(); above = above.parent_path()) {
    if (fs::exists(folder / above / "pyvenv.cfg", failure)) return true;
  }
  return false;
}

std::string named(const std::vector<fs::path>& folders) {
  std::string names;
  for (const auto& folder : folders) names += (names.empty() ? "" : ", ") + folder.string();
  return names;
}

// The checkout that a folder is in, or the folder.
fs::path project_of(const fs::path& folder) {
  const char* home = std::getenv("HOME");
  for (fs::path above = folder; above != above.root_path(); above = above.parent_path()) {
    if (home != nullptr && above == home) break;
    std::error_code failure;
    if (fs::exists(above / ".git", failure)) return above;
  }
  return folder;
}

// The path that a word names, alone or after "=", if it looks like one.
std::optional<fs::path> path_in(const std::string& word) {
  const auto equals = word.find('=');
  const std::string text = equals == std::string::npos ? word : word.substr(equals + 1);
  if (text.find('/') == std::string::npos || text.find(' ') != std::string::npos ||
      text.find("://") != std::string::npos)
    return {};
  const fs::path path = fs::weakly_canonical(fs::absolute(text));
  std::error_code failure;
  const bool executable = fs::is_regular_file(path, failure) && access(path.c_str(), X_OK) == 0;
  return executable ? std::nullopt : std::optional(path);
}

// `path` may not exist yet.
void add_folder(std::vector<fs::path>& folders, const fs::path& path) {
  std::error_code failure;
  fs::path folder = path;
  while (!fs::is_directory(folder, failure) && folder.has_relative_path())
    folder = folder.parent_path();
  if (is_system(folder) || access(folder.c_str(), W_OK) != 0 || folders.size() == kMaxFolders)
    return;
  // Of /tmp, only what the program makes there.
  const bool shared =
      (fs::status(folder, failure).permissions() & fs::perms::sticky_bit) != fs::perms::none;
  if (shared && folder != path) folder = path;
  for (const auto& known : folders) {
    if (lies_in(folder, known)) return;
  }
  std::erase_if(folders, [&](const fs::path& known) { return lies_in(known, folder); });
  folders.push_back(std::move(folder));
}

std::unique_ptr<ScratchFolder> make_store(const std::vector<fs::path>& folders) {
  std::vector<std::string> candidates = {"/tmp", "/var/tmp", "/dev/shm"};
  if (const char* given = std::getenv("TMPDIR"); given != nullptr && *given != '\0')
    candidates.insert(candidates.begin(), given);
  if (const char* home = std::getenv("HOME"); home != nullptr)
    candidates.push_back(std::string(home) + "/.cache");
  for (const auto& candidate : candidates) {
    std::error_code failure;
    const fs::path real = fs::canonical(candidate, failure);
    if (failure || std::any_of(folders.begin(), folders.end(),
                               [&](const fs::path& folder) { return lies_in(real, folder); }))
      continue;
    try {
      return std::make_unique<ScratchFolder>(real, "ddp-doctor-view");
    } catch (const fs::filesystem_error&) {
    }
  }
  throw Error(fmt::format("no temporary folder outside of {}; set TMPDIR to one", named(folders)));
}

// Makes `folder` of `tree`, with what leads to it, as in `original`.
void make_folders(const fs::path& original, const fs::path& tree, const fs::path& relative) {
  fs::path path;
  for (const auto& part : relative) {
    path /= part;
    struct stat status = {};
    if (mkdir((tree / path).c_str(), 0700) == 0 && stat((original / path).c_str(), &status) == 0)
      chmod((tree / path).c_str(), status.st_mode & 07777);
  }
}

// Makes the files of `tree`, an upper layer or a copy of it, what they were.
void restore(const FolderState& state, const fs::path& tree, bool layer) {
  for (const auto& undo : state.undo()) {
    const fs::path path = tree / undo.path;
    make_folders(state.folder(), tree, undo.path.parent_path());
    std::error_code failure;
    fs::remove_all(path, failure);
    if (!undo.existed) {
      if (layer && mknod(path.c_str(), S_IFCHR, makedev(0, 0)) != 0)  // hides what is below
        throw Error(fmt::format("{} cannot be hidden from the run", path.string()));
    } else if (S_ISDIR(undo.status.st_mode)) {
      mkdir(path.c_str(), undo.status.st_mode & 07777);
    } else if (S_ISLNK(undo.status.st_mode)) {
      fs::create_symlink(undo.link_target, path);
    } else if (!copy_file_to(undo.content, path)) {
      throw Error(fmt::format("{} cannot be restored for the run", path.string()));
    }
  }
}

void replace(const Replaced& replaced, const FolderState& state, const fs::path& tree) {
  const fs::path file = fs::weakly_canonical(fs::absolute(replaced.file));
  if (!lies_in(file, state.folder())) return;
  const fs::path relative = file.lexically_relative(state.folder());
  make_folders(state.folder(), tree, relative.parent_path());
  std::error_code failure;
  fs::remove(tree / relative, failure);
  std::ofstream(tree / relative, std::ios::binary) << replaced.content;
  fs::permissions(tree / relative, fs::status(replaced.file, failure).permissions(), failure);
}

// A folder and what stands for it in a view.
struct Tree {
  fs::path folder;
  fs::path tree;
  Listing before = {};
};

std::vector<fs::path> written_in(const std::vector<Tree>& trees) {
  std::vector<fs::path> written;
  for (const auto& [folder, tree, before] : trees) {
    for (const auto& path : changed_files(before, list_folder(tree)))
      written.push_back(folder / path);
  }
  return written;
}

class OverlayView : public View {
 public:
  OverlayView(std::vector<Tree> trees, const std::vector<Overlay>& overlays,
              const fs::path& visible, fs::path here, fs::path own)
      : trees_(std::move(trees)),
        here_(std::move(here)),
        own_(std::move(own)),
        mounts_(std::in_place, overlays, visible) {
    for (auto& tree : trees_) tree.before = list_folder(tree.tree);
  }
  ~OverlayView() override {
    mounts_.reset();
    remove_folder(own_);
  }
  bool enter() const override { return mounts_->join() && chdir(here_.c_str()) == 0; }
  std::vector<fs::path> written() const override { return written_in(trees_); }

 private:
  std::vector<Tree> trees_;
  const fs::path here_, own_;
  std::optional<MountNamespace> mounts_;
};

class CopyView : public View {
 public:
  CopyView(std::vector<Tree> trees, const fs::path& here, fs::path own)
      : trees_(std::move(trees)), own_(std::move(own)) {
    here_ = path_inside(here);
    for (auto& tree : trees_) {
      tree.before = list_folder(tree.tree);
      originals_.push_back({tree.folder, tree.folder, list_folder(tree.folder)});
    }
  }
  ~CopyView() override { remove_folder(own_); }
  bool enter() const override { return chdir(here_.c_str()) == 0; }
  std::string inside(const std::string& word) const override {
    const auto equals = word.find('=');
    const auto at = word.starts_with('/') || equals == std::string::npos ? 0 : equals + 1;
    return word.substr(0, at) + path_inside(word.substr(at)).string();
  }
  std::vector<fs::path> written() const override {
    if (const auto reached = written_in(originals_); !reached.empty())
      throw Error(fmt::format(
          "the run was given a copy of the folder, but wrote {} itself, by an absolute path",
          reached.front().string()));
    return written_in(trees_);
  }

 private:
  fs::path path_inside(const fs::path& path) const {
    for (const auto& tree : trees_) {
      if (path.is_absolute() && lies_in(path, tree.folder))
        return tree.tree / path.lexically_relative(tree.folder);
    }
    return path;
  }

  std::vector<Tree> trees_, originals_;
  fs::path here_;
  const fs::path own_;
};

void copy_folder(const fs::path& from, const fs::path& to, const Listing& listing) {
  std::int64_t left = kMaxCopied;
  for (const auto& [path, status] : listing) {  // a folder before what is in it
    std::error_code failure;
    if (S_ISDIR(status.st_mode)) {
      make_folders(from, to, path);
    } else if (S_ISLNK(status.st_mode)) {
      fs::copy_symlink(from / path, to / path, failure);
    } else if (S_ISREG(status.st_mode) && !copy_file_to(from / path, to / path, &left)) {
      if (status.st_size > left)
        throw Error(fmt::format("{} is larger than {} MB, too large for a copy", from.string(),
                                kMaxCopied / 1'000'000));
      if (access((from / path).c_str(), R_OK) == 0)
        throw Error(fmt::format("{} cannot be copied to {}: is the disk full?",
                                (from / path).string(), to.string()));
    }
  }
}

}  // namespace

std::vector<fs::path> folders_of(const std::vector<ProgramOptions>& programs) {
  const fs::path here = fs::current_path();
  std::vector<fs::path> folders;
  add_folder(folders, project_of(here));
  for (const auto& program : programs) {
    if (!program.is_command())
      add_folder(folders,
                 project_of(fs::weakly_canonical(fs::absolute(program.program)).parent_path()));
    for (const auto& word : program.words) {
      if (const auto path = path_in(word)) add_folder(folders, *path);
    }
  }
  return folders;
}

Isolation::Isolation(const std::vector<ProgramOptions>& programs, const fs::path& records,
                     std::optional<Kind> only)
    : here_(fs::current_path()), records_(fs::canonical(records)) {
  const auto folders = folders_of(programs);
  if (is_system(here_) && access(here_.c_str(), W_OK) == 0)
    throw Error(fmt::format("{} is not a folder of its own", here_.string()));
  store_ = make_store(folders);
  for (int again = 2;; --again) {
    try {
      prepare(folders, only);
      return;
    } catch (const ContentLost&) {  // something else writes there just now
      if (again == 0) throw;
    }
  }
}

void Isolation::prepare(std::vector<fs::path> folders, std::optional<Kind> only) {
  states_.clear();
  for (std::size_t i = 0; i < folders.size(); ++i) {
    const fs::path kept = store_->path() / fmt::format("kept-{}", i);
    remove_folder(kept);
    FolderState state(folders[i], records_, kept);
    // Links to folders elsewhere, such as checkpoints -> /scratch/me.
    for (const auto& [path, status] : state.listing()) {
      std::error_code failure;
      if (!S_ISLNK(status.st_mode)) continue;
      const fs::path target = fs::canonical(folders[i] / path, failure);
      const bool above = std::any_of(folders.begin(), folders.end(),
                                     [&](const fs::path& known) { return lies_in(known, target); });
      if (failure || above || lies_in(store_->path(), target) || is_installed(target) ||
          lies_in_virtual_environment(folders[i], path))
        continue;
      add_folder(folders, target);
    }
    states_.push_back(std::move(state));
  }
  std::string reasons;
  for (const Kind kind : {Kind::kOverlay, Kind::kCopy}) {
    if (only && *only != kind) continue;
    kind_ = kind;
    try {
      view();
      return;
    } catch (const ContentLost&) {
      throw;
    } catch (const std::exception& error) {
      reasons += fmt::format("{}{}", reasons.empty() ? "" : "; ", error.what());
    }
  }
  throw Error(reasons);
}

Isolation::~Isolation() = default;

std::vector<fs::path> Isolation::folders() const {
  std::vector<fs::path> folders;
  for (const auto& state : states_) folders.push_back(state.folder());
  return folders;
}

bool Isolation::covers(const fs::path& file) const {
  const fs::path whole = fs::weakly_canonical(fs::absolute(file));
  return std::any_of(states_.begin(), states_.end(),
                     [&](const FolderState& state) { return lies_in(whole, state.folder()); });
}

std::string Isolation::describe() const {
  const bool reset = std::all_of(states_.begin(), states_.end(),
                                 [](const FolderState& state) { return state.complete(); });
  return fmt::format("{} of {}", kind_ == Kind::kOverlay ? "a copy-on-write view" : "a copy",
                     named(folders())) +
         (reset ? "" : ", as the first run left it (too many files to reset)");
}

std::unique_ptr<View> Isolation::view(const std::vector<Replaced>& replaced) const {
  const fs::path own = store_->path() / fmt::format("view-{}", count_++);
  fs::create_directory(own);
  try {
    return kind_ == Kind::kOverlay ? overlay(own, replaced) : copy(own, replaced);
  } catch (...) {
    remove_folder(own);
    throw;
  }
}

std::unique_ptr<View> Isolation::overlay(const fs::path& own,
                                         const std::vector<Replaced>& replaced) const {
  std::vector<Tree> trees;
  std::vector<Overlay> overlays;
  for (const auto& state : states_) {
    struct stat status = {};
    if (stat(state.folder().c_str(), &status) != 0) continue;
    const fs::path base = own / std::to_string(trees.size());
    const fs::path upper = base / "upper";
    fs::create_directories(base / "work");
    fs::create_directory(upper);
    chmod(upper.c_str(), status.st_mode & 07777);  // the mounted folder's mode
    restore(state, upper, true);
    for (const auto& file : replaced) replace(file, state, upper);
    trees.push_back({state.folder(), upper});
    overlays.push_back({state.folder(), upper, base / "work"});
  }
  return std::make_unique<OverlayView>(std::move(trees), overlays, records_, here_, own);
}

std::unique_ptr<View> Isolation::copy(const fs::path& own,
                                      const std::vector<Replaced>& replaced) const {
  std::vector<Tree> trees;
  for (const auto& state : states_) {
    if (!fs::exists(state.folder())) continue;
    const fs::path tree = own / std::to_string(trees.size());
    fs::create_directory(tree);
    bool all = true;
    const Listing now = list_folder(state.folder(), records_, &all);
    if (!all) throw Error(fmt::format("{} has too many files to copy", state.folder().string()));
    copy_folder(state.folder(), tree, now);
    restore(state, tree, false);
    for (const auto& file : replaced) replace(file, state, tree);
    trees.push_back({state.folder(), tree});
  }
  return std::make_unique<CopyView>(std::move(trees), here_, own);
}

}  // namespace ddp_doctor
