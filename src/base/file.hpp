// Files written so that they are whole or absent, and read with checks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace garonne {

// Writes a file from start to end, hashing on the way; a link at its name is not followed. Every
// failure is an IoError with the path.
class FileWriter {
 public:
  explicit FileWriter(const std::string& path);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(const void* data, std::size_t bytes);
  // fsync and close; returns the hash of what was written, equal to hash_file's.
  std::string finish();
  // Closes without fsync, for what may be lost with the power.
  void close();

 private:
  struct Hash;
  std::string path_;
  int descriptor_ = -1;
  std::unique_ptr<Hash> hash_;
};

// Reads at positions. Refuses what is no regular file, and never waits for one: a named pipe or a
// device is refused at once. IoError.
class FileReader {
 public:
  explicit FileReader(const std::string& path);
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  std::int64_t size() const { return size_; }
  // Throws IoError when the file ends before.
  void read(std::int64_t offset, void* destination, std::size_t bytes) const;

 private:
  std::string path_;
  int descriptor_ = -1;
  std::int64_t size_ = 0;
};

// The most bytes of a file that is read as a whole, by what it is (docs/formats.md). A file with
// more is refused before any of it is read.
inline constexpr std::int64_t most_toml_bytes = std::int64_t{1} << 20;
inline constexpr std::int64_t most_json_bytes = std::int64_t{64} << 20;
inline constexpr std::int64_t most_run_json_bytes = std::int64_t{512} << 20;  // of a run directory

// The whole of a regular file. IoError: it cannot be read, is none, or has more bytes than
// `most_bytes`.
std::string read_text_file(const std::string& path, std::int64_t most_bytes = most_json_bytes);

// The same for a file that the user names: ConfigError. `advice` says what to do instead of giving
// one that cannot be read, as "give the path of a run file (TOML)".
std::string read_given_file(const std::string& path, const std::string& advice,
                            std::int64_t most_bytes = most_json_bytes);
// The same for a file that `key` names: the ConfigError has the key and the path as its value.
std::string read_file_of_key(const std::string& key, const std::string& path,
                             const std::string& advice, std::int64_t most_bytes = most_json_bytes);

// Writes beside it, fsyncs, renames and fsyncs the folder: the old file or the new one, never half
// of it.
void write_file_durably(const std::string& path, const std::string& text);

// Makes the names in a folder durable.
void sync_directory(const std::string& path);

}  // namespace garonne
