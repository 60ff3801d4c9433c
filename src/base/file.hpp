// Files written so that they are whole or absent, and read with checks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace garonne {

// Writes a new file from start to end, hashing on the way. Every failure is an IoError with the
// path.
class FileWriter {
 public:
  explicit FileWriter(const std::string& path);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(const void* data, std::size_t bytes);
  // fsync and close; returns the hash of what was written, equal to hash_file's.
  std::string finish();

 private:
  struct Hash;
  std::string path_;
  int descriptor_ = -1;
  std::unique_ptr<Hash> hash_;
};

// Reads at positions. Refuses what is no regular file.
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

std::string read_text_file(const std::string& path);

// Writes beside (path.partial), fsyncs, renames and fsyncs the folder: the old file or the new one,
// never half of it.
void write_file_durably(const std::string& path, const std::string& text);

// Makes the names in a folder durable.
void sync_directory(const std::string& path);

}  // namespace garonne
