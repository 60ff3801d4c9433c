// Files that a command writes where its user says, and what may be replaced there.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace garonne {

// What a command writes.
struct OutputKind {
  std::string name;  // for people, as "a forecast of Garonne"
  // Whether a regular file is one that Garonne wrote before; the only kind of file that is
  // replaced.
  std::function<bool(const std::string& path)> is_one;
  // That the end of a name may promise, as "HDF5" for .h5; empty = whatever it promises.
  std::vector<std::string> formats = {};
};

// A text of which `mark`, which is ours alone, is within the first kilobyte.
OutputKind text_output(std::string name, std::string mark);
// JSON that begins with {"format": one of `formats`, as all of ours does.
OutputKind json_output(std::string name, std::vector<std::string> formats);

// Throws ConfigError (`option`, `path`) where writing there would lose something or mislead: one of
// the files `inputs` of the command is there, under whatever name, or a file with content that is
// none of this kind, or something that is no regular file; the folder is missing or takes no files;
// or the name ends as files of another format do. Writes nothing. Local to the rank.
void expect_output(const std::string& option, const std::string& path, const OutputKind& kind,
                   const std::vector<std::string>& inputs = {});

// The last of these alone: `written` says what is written, as "a folder of .npy files".
void expect_suffix(const std::string& option, const std::string& path, const std::string& written,
                   const std::vector<std::string>& formats);

}  // namespace garonne
