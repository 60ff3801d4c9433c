// A file that appears under its name only when it is whole.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace garonne::data {

// The name to write to meanwhile; removed at the end unless published.
class PartialFile {
 public:
  explicit PartialFile(std::string output)
      : output_(std::move(output)), path_(output_ + ".partial") {}
  PartialFile(PartialFile&& other) noexcept
      : output_(std::move(other.output_)),
        path_(std::move(other.path_)),
        owned_(std::exchange(other.owned_, false)) {}
  PartialFile& operator=(PartialFile&&) = delete;
  ~PartialFile();

  // Makes the written file durable and renames it, over an older one if there is one. IoError.
  void publish();

  const std::string& path() const { return path_; }

 private:
  std::string output_;
  std::string path_;
  bool owned_ = true;
};

// IoError where the folder of `output` does not exist or about `needed` bytes do not fit on its
// disk: found before minutes of work. A file system that cannot say how much is free is believed to
// have enough.
void check_space(const std::string& output, std::int64_t needed);

}  // namespace garonne::data
