// Several files in one input: each begins with a line "=== NAME", and its bytes go to the end or to
// the line break before the next one. What comes before the first name is in no file.
#pragma once

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "fuzz/fuzz_target.hpp"
#include "fuzz/scratch_folder.hpp"

namespace garonne::fuzz {

class FolderInput {
 public:
  FolderInput(const std::uint8_t* data, std::size_t size) {
    constexpr std::string_view mark = "=== ";
    std::string_view rest = text_of(data, size);
    for (int files = 0; files < 32; ++files) {
      const std::size_t begin = rest.find(mark);
      const std::size_t end = rest.find('\n', begin);
      if (begin == std::string_view::npos || end == std::string_view::npos) return;
      const std::string name(rest.substr(begin + mark.size(), end - begin - mark.size()));
      rest = rest.substr(end + 1);
      const std::size_t next = rest.find("\n=== ");
      write(name, rest.substr(0, next));
      if (next == std::string_view::npos) return;
      rest = rest.substr(next + 1);
    }
  }
  std::string path() const { return folder_.path(); }
  std::string file(const std::string& name) const { return folder_.file(name); }

 private:
  // Nothing is written elsewhere: letters, digits and marks, and one folder at most.
  void write(const std::string& name, std::string_view bytes) const {
    const auto is_plain = [](unsigned char letter) {
      return std::isalnum(letter) != 0 || letter == '.' || letter == '_' || letter == '-' ||
             letter == '/';
    };
    if (name.empty() || name.size() > 80 || name.find("..") != std::string::npos ||
        name.front() == '/' || std::count(name.begin(), name.end(), '/') > 1 ||
        !std::all_of(name.begin(), name.end(), is_plain)) {
      return;
    }
    std::error_code ignored;
    const std::filesystem::path path = folder_.file(name);
    std::filesystem::create_directory(path.parent_path(), ignored);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }

  ScratchFolder folder_;
};

}  // namespace garonne::fuzz
