// The safetensors file format, written and read by its exact rules: an 8-byte little-endian header
// length, a JSON header, then the tensors' bytes without holes or overlap, to the last byte of the
// file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace garonne::train {

// One tensor of a file: "F32", "F64", "F16", "BF16", "I64", "I32", "U8" or "BOOL", C order.
struct TensorEntry {
  std::string name;
  std::string type;
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0;  // bytes, relative to the end of the header
  std::int64_t end = 0;
};

// Bytes of an element; throws IoError (with `path`) for a type that is not known.
std::int64_t safetensors_element_bytes(const std::string& type, const std::string& path);

// A tensor to be written; `bytes` must stay valid until the file is written. Where they are not the
// host's to read there are none, and `bring` shows them in their order, in pieces of whole
// elements.
struct TensorSource {
  using Show = std::function<void(std::span<const std::byte> piece)>;

  std::string name;
  std::string type;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
  std::function<void(const Show& show)> bring = nullptr;
};

// Is shown the bytes of a tensor, whole elements in parts that fit a cache, as they are written.
using TensorWatch = std::function<void(const TensorSource&, std::span<const std::byte>)>;

// Writes the whole file and fsyncs it; returns its hash (hash_file's). Throws IoError, as for a
// full disk, and leaves no guarantee about the file then.
std::string write_safetensors(const std::string& path, const std::vector<TensorSource>& tensors,
                              const std::map<std::string, std::string>& metadata,
                              const TensorWatch& watch = {});

// A file opened for reading, its header checked completely.
class SafetensorsFile {
 public:
  // Throws IoError for anything that breaks the rules.
  explicit SafetensorsFile(const std::string& path);

  const std::vector<TensorEntry>& tensors() const { return tensors_; }
  // Throws IoError when there is no such tensor.
  const TensorEntry& find(const std::string& name) const;
  // Reads bytes [offset, offset + destination.size()) of a tensor.
  void read(const TensorEntry& tensor, std::int64_t offset, std::span<std::byte> destination) const;

 private:
  std::string path_;
  std::int64_t data_start_ = 0;
  std::vector<TensorEntry> tensors_;
};

}  // namespace garonne::train
