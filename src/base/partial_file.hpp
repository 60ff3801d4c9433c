// A file that appears under its name only when it is whole.
#pragma once

#include <string>
#include <utility>

namespace garonne {

// The name to write to meanwhile: an empty file beside `target`, newly made, with a name that
// nobody can guess, so that neither two writers nor a link laid there beforehand get in the way.
// Removed at the end unless published; only a killed process leaves it. IoError where it cannot be
// made.
class PartialFile {
 public:
  explicit PartialFile(std::string target);
  PartialFile(PartialFile&& other) noexcept
      : target_(std::move(other.target_)),
        path_(std::move(other.path_)),
        owned_(std::exchange(other.owned_, false)) {}
  PartialFile& operator=(PartialFile&&) = delete;
  ~PartialFile();

  // Makes the written file durable and renames it, over an older one if there is one. IoError.
  void publish();
  // Renames it only: after a power cut there may be an empty file.
  void publish_without_waiting();

  const std::string& path() const { return path_; }

 private:
  std::string target_;
  std::string path_;
  bool owned_ = true;
};

}  // namespace garonne
