// The only door to HDF5: files, datasets and attributes with owners, and its errors as IoError.
//
// No HDF5 type or handle appears here, so nothing outside this room can call the library. HDF5 as
// distributed for MPI is not thread-safe: every call below takes one lock of the process, and long
// reading belongs on the one thread of a Reader (reader.hpp). An MPI build of HDF5 shuts down
// inside MPI_Finalize, so every file must be closed before it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace garonne::data {

class ChunkCheck;
class ForeignReader;
class VirtualSources;

// What an element of a dataset is: a number of `bytes` bytes, or something that is not a number.
enum class NumberFamily { Unsigned, Signed, Floating, Other };
struct NumberType {
  NumberFamily family = NumberFamily::Other;
  int bytes = 0;
};

// Owner of one HDF5 identifier.
class Hdf5Handle {
 public:
  using Close = int (*)(std::int64_t);
  Hdf5Handle() = default;
  Hdf5Handle(std::int64_t identifier, Close closer) : identifier_(identifier), close_(closer) {}
  Hdf5Handle(Hdf5Handle&& other) noexcept
      : identifier_(std::exchange(other.identifier_, -1)), close_(other.close_) {}
  Hdf5Handle& operator=(Hdf5Handle&& other) noexcept;
  ~Hdf5Handle();

  std::int64_t get() const { return identifier_; }
  // Closes now; false when HDF5 could not.
  bool close();

 private:
  std::int64_t identifier_ = -1;
  Close close_ = nullptr;
};

// Whether the elements of a dataset may lie in datasets of other files (hdf5_virtual.hpp).
enum class VirtualData { Refused, Allowed };

// Of each dimension the indices first, first + step, …
struct Hdf5Box {
  std::vector<std::int64_t> first;
  std::vector<std::int64_t> step;
  std::vector<std::int64_t> count;
};

// "[1460, 20, 721, 1440]", as messages write shapes.
std::string shape_text(std::span<const std::int64_t> shape);

// One dataset of an open Hdf5File, which must outlive it. T below is std::uint8_t, uint16_t,
// uint32_t, std::int32_t, std::int64_t, float or double; HDF5 converts from what is stored.
class Hdf5Dataset {
 public:
  // Elements along each dimension.
  const std::vector<std::int64_t>& shape() const { return shape_; }
  NumberType type() const { return type_; }
  // Elements of a chunk along each dimension; empty when the dataset is not chunked.
  const std::vector<std::int64_t>& chunk() const { return chunk_; }
  // Elements of a chunk; 0 when the dataset is not chunked.
  std::int64_t chunk_elements() const { return chunk_elements_; }
  bool compressed() const { return !compression_.empty(); }
  // "deflate" or "LZF"; empty where it is not compressed.
  const std::string& compression() const { return compression_; }
  // Whether every chunk carries a Fletcher-32 checksum.
  bool checksummed() const { return checksummed_; }
  // Files that its elements lie in, where these are others; 0 = they lie in this one.
  std::size_t source_files() const;
  // Bytes of all its elements, and the most of them that can be what is stored in the file; the
  // others are fill values.
  std::int64_t declared_bytes() const { return declared_bytes_; }
  std::int64_t stored_bytes() const;

  // For telling copies of a file from others (file_identity.hpp): shape, type and storage in words;
  // the hash of the first or last chunk as it is stored, of a large one of its two ends with the
  // checksum. Where there are no chunks the two ends of the dataset count as such. IoError.
  std::string header_text() const;
  std::string hash_of_chunk(bool last) const;

  // Reads elements [first, first + values.size()) of a one-dimensional dataset. IoError when the
  // range is outside, a checksum is wrong or the file has become shorter since it was opened.
  template <typename T>
  void read(std::int64_t first, std::span<T> values) const;

  // Reads the box of `count` elements along each dimension from `first` on, in row-major order;
  // `values` has as many elements. Errors as for read.
  template <typename T>
  void read_box(std::span<const std::int64_t> first, std::span<const std::int64_t> count,
                std::span<T> values) const;
  // All of it, in row-major order: for what is small. IoError above `most` elements.
  template <typename T>
  std::vector<T> read_all(std::int64_t most = 1 << 27) const;
  // The strings of a one-dimensional dataset of strings, blanks at their ends cut off. IoError for
  // more than 2^20 of them or 8 MiB.
  std::vector<std::string> read_texts() const;

  template <typename T>
  void write_box(std::span<const std::int64_t> first, std::span<const std::int64_t> count,
                 std::span<const T> values);

  // Writes over elements [first, first + values.size()), which must exist.
  template <typename T>
  void write(std::int64_t first, std::span<const T> values);

  // Grows a one-dimensional chunked dataset by `values`. Whole chunks are written fastest.
  template <typename T>
  void append(std::span<const T> values);

 private:
  friend class Hdf5File;
  friend class VirtualSources;
  Hdf5Dataset(Hdf5Handle handle, std::string path, std::string name, std::int64_t file,
              std::int64_t file_bytes, std::shared_ptr<ForeignReader> foreign,
              VirtualData virtual_data = VirtualData::Refused);
  void read_layout(VirtualData virtual_data);
  void read_filters(std::int64_t properties);
  // Elements `origin` of this dataset to elements `target` of an array of the shape `shape`.
  template <typename T>
  void read_steps(const Hdf5Box& origin, std::span<const std::int64_t> shape, const Hdf5Box& target,
                  std::span<T> values) const;
  void check_extent() const;
  // Of the chunks with elements of the box, before HDF5 reads them.
  void check_chunks(const Hdf5Box& box) const;
  [[noreturn]] void fail(const std::string& what) const;
  Hdf5Handle select(std::span<const std::int64_t> first, std::span<const std::int64_t> count) const;
  void check_still_whole() const;
  std::string hash_of_header_data() const;

  Hdf5Handle handle_;
  std::string path_;
  std::string name_;
  std::int64_t file_;
  std::int64_t file_bytes_;
  std::vector<std::int64_t> shape_;
  NumberType type_;
  std::vector<std::int64_t> chunk_;
  std::int64_t chunk_elements_ = 0;
  std::int64_t declared_bytes_ = 0;
  bool checksummed_ = false;
  std::string compression_;
  std::shared_ptr<ForeignReader> foreign_;
  std::shared_ptr<ChunkCheck> chunk_check_;  // null where there are no chunks
  std::shared_ptr<VirtualSources> virtual_;  // null where the elements lie in this file
};

// The attributes of a group or dataset of an open Hdf5File, which must outlive it. Reading a
// missing one, one of another type or one above 1 MiB is an IoError.
class Hdf5Attributes {
 public:
  bool has(const std::string& name) const;
  // Whether it is there and holds texts.
  bool has_text(const std::string& name) const;
  // A string; of several, the first.
  std::string text(const std::string& name) const;
  std::vector<std::string> texts(const std::string& name) const;
  // A number or several; truth values are 0 and 1.
  std::vector<double> numbers(const std::string& name) const;
  double number(const std::string& name) const;
  // Whether an attribute of truth is set; `otherwise` where there is none.
  bool truth(const std::string& name, bool otherwise) const;

  // Names, types and values of all as they are stored, one a line, in order of their names; of what
  // has no fixed length, such as many strings of other programs, names and types only.
  std::string stored_text() const;

  void write(const std::string& name, const std::string& value);
  void write(const std::string& name, std::span<const double> values);
  // One number of type T itself, as CF wants a `_FillValue` to be.
  template <typename T>
  void write_value(const std::string& name, T value);

 private:
  friend class Hdf5File;
  Hdf5Attributes(Hdf5Handle object, std::string path, std::string object_name,
                 std::shared_ptr<ForeignReader> foreign)
      : object_(std::move(object)),
        path_(std::move(path)),
        object_name_(std::move(object_name)),
        foreign_(std::move(foreign)) {}
  std::string label(const std::string& name) const;
  Hdf5Handle open(const std::string& name) const;

  Hdf5Handle object_;
  std::string path_;
  std::string object_name_;
  std::shared_ptr<ForeignReader> foreign_;
};

// One open file. Every failure is an IoError with its path.
//
// What a file says of itself is not believed. Names lead to objects of this file only: where a link
// on the way is soft or external it is refused by name. A dataset is refused that declares more
// than its stored chunks can hold (16-fold and 1 MiB are let pass, since chunks may be absent),
// that lies beyond the end of the file, or whose chunks are above 256 MiB, and a chunk that does
// not hold as many bytes as a chunk has.
class Hdf5File {
 public:
  // Opens for reading, after looking at the file without HDF5: "no such file", "not an HDF5 file",
  // "truncated". No lock is taken on the file (parallel file systems often refuse one). `foreign`
  // tries structures first, and reads elements of variable length; several files may share one.
  static Hdf5File open(const std::string& path, std::shared_ptr<ForeignReader> foreign = nullptr);
  // The same for a file that was opened before, to read numbers: nothing is tried or counted again,
  // and elements of variable length are not read.
  static Hdf5File open_again(const std::string& path);
  // Creates or empties `path`. The same writes give the same bytes: no times are kept in the file.
  static Hdf5File create(const std::string& path);

  bool has_dataset(const std::string& name) const;
  // Opens a dataset: external ones and filters other than Fletcher-32, shuffle, deflate and LZF are
  // refused, virtual ones unless they are allowed. `cache_bytes` is HDF5's chunk cache for it.
  Hdf5Dataset dataset(const std::string& name, std::int64_t cache_bytes = 1 << 20,
                      VirtualData virtual_data = VirtualData::Refused) const;
  Hdf5Dataset dataset(const std::string& name, VirtualData virtual_data) const {
    return dataset(name, 1 << 20, virtual_data);
  }
  // Creates an empty one-dimensional dataset that can grow, little-endian T (std::uint8_t,
  // uint16_t or uint32_t), with chunks of `chunk_elements` elements and Fletcher-32.
  template <typename T>
  Hdf5Dataset create_growing(const std::string& name, std::int64_t chunk_elements);

  // Creates a dataset of `shape`, little-endian T, its elements 0 until written; `chunk` empty =
  // contiguous, else as many elements a chunk and Fletcher-32. Groups on the way to `name` are
  // made.
  template <typename T>
  Hdf5Dataset create_array(const std::string& name, std::span<const std::int64_t> shape,
                           std::span<const std::int64_t> chunk = {});
  // The same in chunks that are shuffled, deflated at `level` (0 to 9) and checksummed; elements
  // are NaN until written.
  Hdf5Dataset create_compressed(const std::string& name, std::span<const std::int64_t> shape,
                                std::span<const std::int64_t> chunk, int level);
  // A one-dimensional dataset of strings of any length in UTF-8, as netCDF-4 has them.
  void create_long_texts(const std::string& name, const std::vector<std::string>& texts);
  // A dimension of netCDF-4 that has no coordinates; a scale for attach_scale.
  void create_dimension(const std::string& name, std::int64_t size);
  // A one-dimensional dataset of strings of one length, as makani's `channel`.
  void create_texts(const std::string& name, const std::vector<std::string>& texts);
  void create_group(const std::string& name);
  // Makes the one-dimensional dataset `scale` the scale of a dimension of `dataset`, under its own
  // name, and gives the dimension a label: HDF5's dimension scales, as netCDF-4 and makani use
  // them.
  void attach_scale(const std::string& dataset, int dimension, const std::string& scale,
                    const std::string& label);
  // The same without a label, of a scale of its own name within its group.
  void make_scale(const std::string& scale);
  void attach_scale(const std::string& dataset, int dimension, const std::string& scale);

  // From here on only values of datasets can be written, and what flush() has handed over survives
  // the end of this process at any moment; others may read meanwhile (HDF5's single writer,
  // multiple readers).
  void begin_safe_writing();
  // Hands what was written so far to the operating system.
  void flush();
  // Opens a file whose writer was ended amid begin_safe_writing(), to write on. IoError as open().
  static Hdf5File open_unfinished(const std::string& path);

  // Names of what lies directly in a group ("/" = the root), in alphabetical order, without links
  // to elsewhere.
  std::vector<std::string> datasets(const std::string& group = "/") const;
  std::vector<std::string> groups(const std::string& group = "/") const;
  bool has_group(const std::string& name) const;
  // Of a dataset: the name of the first dimension scale of each dimension, without the leading
  // slash; "" where a dimension has none.
  std::vector<std::string> dimension_scales(const std::string& dataset) const;
  // The attributes of the dataset or group `name`.
  Hdf5Attributes attributes(const std::string& name) const;

  // Attributes of the file (of its root group). Reading a missing one, one of another type or a
  // string above 1 MiB is an IoError.
  bool has_attribute(const std::string& name) const;
  std::string string_attribute(const std::string& name) const;
  std::int64_t integer_attribute(const std::string& name) const;
  void write_attribute(const std::string& name, const std::string& value);
  void write_attribute(const std::string& name, std::int64_t value);

  // Hands everything to the operating system and closes; the destructor does so too, but silently.
  // Datasets of this file must be gone.
  void close();

  const std::string& path() const { return path_; }
  // Bytes of the file when it was opened; 0 for a created one.
  std::int64_t file_bytes() const { return file_bytes_; }

 private:
  static Hdf5File open_tried(const std::string& path, std::int64_t file_bytes,
                             std::shared_ptr<ForeignReader> foreign);
  Hdf5File(Hdf5Handle handle, std::string path, std::int64_t file_bytes,
           std::shared_ptr<ForeignReader> foreign)
      : handle_(std::move(handle)),
        path_(std::move(path)),
        file_bytes_(file_bytes),
        foreign_(std::move(foreign)) {}

  Hdf5Handle handle_;
  std::string path_;
  std::int64_t file_bytes_;
  std::shared_ptr<ForeignReader> foreign_;
};

}  // namespace garonne::data
