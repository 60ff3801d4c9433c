#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "base/bytes.hpp"
#include "base/printable.hpp"
#include "data/hdf5/foreign_reader.hpp"
#include "data/hdf5/hdf5_chunks.hpp"
#include "data/hdf5/hdf5_internal.hpp"
#include "data/hdf5/hdf5_virtual.hpp"

namespace garonne::data {
namespace {

constexpr std::int64_t largest_chunk_bytes = 256LL << 20;
// Chunks that were never written may be absent: this much is let pass, in bytes and as a multiple.
constexpr std::int64_t believed_bytes = 1LL << 20;
constexpr std::int64_t believed_multiple = 16;
// Of deflate: at most 258 bytes of two bits.
constexpr std::int64_t greatest_compression = 1032;
constexpr std::int64_t most_texts = 1LL << 20;
constexpr std::int64_t most_text_bytes = 8LL << 20;
constexpr std::int64_t no_limit = std::numeric_limits<std::int64_t>::max();

// The product, or no_limit where that is less.
std::int64_t bounded_product(std::int64_t one, std::int64_t other) {
  std::int64_t product = 0;
  return __builtin_mul_overflow(one, other, &product) ? no_limit : product;
}

// Of an array of this shape, or no_limit where that is less. A file can declare sizes whose product
// is none of std::int64_t, and after them one of 0.
std::int64_t element_count(std::span<const std::int64_t> shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, bounded_product);
}

void expect_size(std::span<const std::int64_t> shape, std::size_t size) {
  expect(element_count(shape) == static_cast<std::int64_t>(size),
         "a box and its values differ in size");
}

// Of an array of this shape. HDF5 takes elements of chunks one by one, at a fiftieth of the rate,
// where the shapes in the file and in memory differ.
Hdf5Handle packed_space(std::span<const std::int64_t> shape, const std::string& path) {
  std::vector<hsize_t> extent(shape.begin(), shape.end());
  if (extent.empty()) extent.push_back(1);
  return own(H5Screate_simple(static_cast<int>(extent.size()), extent.data(), nullptr), H5Sclose,
             path, "memory space");
}

std::string trimmed(std::string text) {
  text.resize(std::min(text.find('\0'), text.size()));
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

}  // namespace

std::string shape_text(std::span<const std::int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Hdf5Dataset::Hdf5Dataset(Hdf5Handle handle, std::string path, std::string name, std::int64_t file,
                         std::int64_t file_bytes, std::shared_ptr<ForeignReader> foreign,
                         VirtualData virtual_data)
    : handle_(std::move(handle)),
      path_(std::move(path)),
      name_(std::move(name)),
      file_(file),
      file_bytes_(file_bytes),
      foreign_(std::move(foreign)) {
  const std::string label = labelled("dataset", name_);
  const Hdf5Handle space = own(H5Dget_space(handle_.get()), H5Sclose, path_, label);
  const int rank = H5Sget_simple_extent_ndims(space.get());
  check(rank, path_, label);
  std::vector<hsize_t> extent(static_cast<std::size_t>(rank));
  if (rank > 0) check(H5Sget_simple_extent_dims(space.get(), extent.data(), nullptr), path_, label);
  const Hdf5Handle type = own(H5Dget_type(handle_.get()), H5Tclose, path_, label);
  type_ = number_type(type.get());
  if (type_.bytes == 0) {  // and not as many as can be counted with
    fail(fmt::format("has elements of {} bytes; the file is damaged", H5Tget_size(type.get())));
  }
  declared_bytes_ = type_.bytes;
  bool empty = H5Sget_simple_extent_type(space.get()) == H5S_NULL;
  for (const hsize_t size : extent) {
    if (size > static_cast<hsize_t>(no_limit)) fail("has a dimension without a size");
    shape_.push_back(static_cast<std::int64_t>(size));
    declared_bytes_ = bounded_product(declared_bytes_, std::max<std::int64_t>(shape_.back(), 1));
    empty = empty || size == 0;
  }
  if (empty) declared_bytes_ = 0;
  read_layout(virtual_data);
  check_extent();
}

void Hdf5Dataset::read_layout(VirtualData virtual_data) {
  const std::string label = labelled("dataset", name_);
  const Hdf5Handle properties = own(H5Dget_create_plist(handle_.get()), H5Pclose, path_, label);
  const H5D_layout_t layout = H5Pget_layout(properties.get());
  if ((layout == H5D_VIRTUAL && virtual_data == VirtualData::Refused) ||
      H5Pget_external_count(properties.get()) > 0) {
    fail("its elements lie in other files, which is refused");
  }
  if (layout == H5D_VIRTUAL) {
    virtual_ = std::make_shared<VirtualSources>(properties.get(), path_, name_, shape_, foreign_);
    return;
  }
  if (layout == H5D_COMPACT) {
    // HDF5 before 1.14 copies as many bytes as elements have, wherever that ends.
    const hsize_t in_header = H5Dget_storage_size(handle_.get());
    if (in_header < static_cast<hsize_t>(declared_bytes_)) {
      fail(fmt::format("has {} bytes in its header, and its elements have {}; the file is damaged",
                       in_header, declared_bytes_));
    }
  }
  if (layout == H5D_CHUNKED) {
    std::vector<hsize_t> chunk(H5S_MAX_RANK);
    const int dimensions = H5Pget_chunk(properties.get(), H5S_MAX_RANK, chunk.data());
    check(dimensions, path_, label);
    chunk.resize(static_cast<std::size_t>(dimensions));
    // HDF5 takes any amount of memory to find out.
    if (chunk.size() != shape_.size()) {
      fail(fmt::format("its chunks have {} dimensions, and it has {}; the file is damaged",
                       chunk.size(), shape_.size()));
    }
    chunk_elements_ = 1;
    for (const hsize_t size : chunk) {
      const std::int64_t limit = largest_chunk_bytes / type_.bytes / chunk_elements_;
      if (size > static_cast<hsize_t>(limit)) fail("its chunks are larger than 256 MiB");
      if (size == 0) fail("its chunks are empty");
      chunk_elements_ *= static_cast<std::int64_t>(size);
      chunk_.push_back(static_cast<std::int64_t>(size));
    }
    const std::string wrong = wrong_with_growth(handle_.get(), shape_, chunk_);
    if (!wrong.empty()) fail(wrong + "; the file is damaged");
  }
  read_filters(properties.get());
}

void Hdf5Dataset::read_filters(std::int64_t properties) {
  const int filters = H5Pget_nfilters(properties);
  std::vector<ChunkCheck::Filter> order;
  for (int index = 0; index < filters; ++index) {
    unsigned flags = 0;
    std::array<unsigned, 8> values = {};
    std::size_t count = values.size();
    unsigned configuration = 0;
    const H5Z_filter_t filter = H5Pget_filter2(properties, static_cast<unsigned>(index), &flags,
                                               &count, values.data(), 0, nullptr, &configuration);
    if (filter == H5Z_FILTER_FLETCHER32) {
      checksummed_ = true;
      order.push_back(ChunkCheck::Filter::Fletcher32);
    } else if (filter == H5Z_FILTER_DEFLATE || filter == lzf_filter) {
      if (compressed()) fail("is compressed twice");
      compression_ = filter == lzf_filter ? "LZF" : "deflate";
      order.push_back(filter == lzf_filter ? ChunkCheck::Filter::Lzf : ChunkCheck::Filter::Deflate);
    } else if (filter == H5Z_FILTER_SHUFFLE) {
      order.push_back(ChunkCheck::Filter::Shuffle);
    } else {
      fail(
          fmt::format("it uses the HDF5 filter {}; known are shuffle, deflate, LZF and Fletcher-32",
                      static_cast<int>(filter)));
    }
    if (filter != lzf_filter) continue;
    if (!lzf_is_there()) {
      fail(
          "it is compressed by LZF, and this program was built without liblzf; scripts/setup "
          "installs it (liblzf-dev) and builds again, and h5repack -f GZIP=1 makes a file without");
    }
    // The filter is told how long a chunk is, and HDF5 believes that it was.
    const std::int64_t chunk_bytes = chunk_elements_ * type_.bytes;
    if (count < 3 || static_cast<std::int64_t>(values[2]) != chunk_bytes) {
      fail(fmt::format(
          "its LZF filter is of chunks of {} bytes, but they have {}; the file is damaged",
          count < 3 ? 0 : values[2], chunk_bytes));
    }
  }
  // What is being written is our own.
  if (chunk_.empty() || file_bytes_ == 0) return;
  chunk_check_ =
      std::make_shared<ChunkCheck>(shape_, chunk_, chunk_elements_ * type_.bytes, std::move(order));
}

std::size_t Hdf5Dataset::source_files() const {
  return virtual_ ? virtual_->files() : 0;
}

std::int64_t Hdf5Dataset::stored_bytes() const {
  const LibraryLock lock;
  expect(!virtual_, "bytes of a virtual dataset that are stored in its file");
  const hsize_t taken = H5Dget_storage_size(handle_.get());
  if (file_bytes_ > 0 && taken > static_cast<hsize_t>(file_bytes_)) {
    fail(fmt::format("is said to take {} bytes of a file of {}", taken, file_bytes_));
  }
  const auto stored = static_cast<std::int64_t>(taken);
  if (chunk_.empty()) return stored;
  // Checksums and compression that did not pay make a chunk a little longer than its elements.
  std::int64_t held = compressed() ? bounded_product(stored, greatest_compression) : stored;
#if H5_VERSION_GE(1, 10, 5)
  const Hdf5Handle space =
      own(H5Dget_space(handle_.get()), H5Sclose, path_, labelled("dataset", name_));
  hsize_t chunks = 0;
  check(H5Dget_num_chunks(handle_.get(), space.get(), &chunks), path_, labelled("dataset", name_));
  const std::int64_t chunk_bytes = chunk_elements_ * type_.bytes;
  held = std::min(held, bounded_product(static_cast<std::int64_t>(std::min<hsize_t>(
                                            chunks, static_cast<hsize_t>(no_limit))),
                                        chunk_bytes));
#endif
  return held;
}

void Hdf5Dataset::check_extent() const {
  if (file_bytes_ == 0) return;  // it is being written
  if (virtual_) {
    if (!foreign_) return;  // they were counted before
    const double elements = static_cast<double>(declared_bytes_) / type_.bytes;
    if (declared_bytes_ <= believed_bytes ||
        elements <= static_cast<double>(believed_multiple) * virtual_->source_elements()) {
      return;
    }
    fail(fmt::format("declares {} elements, but its sources have {:.0f} at most",
                     shape_text(shape_), virtual_->source_elements()));
  }
  if (chunk_.empty()) {
    const haddr_t offset = H5Dget_offset(handle_.get());  // where it has a place of its own
    H5Eclear2(H5E_DEFAULT);
    const std::int64_t stored = stored_bytes();
    if (offset != HADDR_UNDEF && offset > static_cast<haddr_t>(file_bytes_ - stored)) {
      fail("its elements lie beyond the end of the file");
    }
    // HDF5 copies as much as is declared.
    if ((offset != HADDR_UNDEF || stored > 0) && stored < declared_bytes_) {
      fail(fmt::format("has the shape {}, but only {} bytes are stored", shape_text(shape_),
                       stored));
    }
  }
  if (!foreign_ && !chunk_.empty()) return;  // they were counted before
  // What is no larger than the file needs no look at its chunks.
  if (declared_bytes_ <= std::max(believed_bytes, chunk_.empty() ? 0 : file_bytes_)) return;
  const std::int64_t stored = stored_bytes();
  if (declared_bytes_ / believed_multiple <= stored) return;
  fail(fmt::format(
      "declares {} elements, {}, but what is stored holds {} bytes at most", shape_text(shape_),
      declared_bytes_ == no_limit ? "more than can be counted" : format_bytes(declared_bytes_),
      stored));
}

void Hdf5Dataset::fail(const std::string& what) const {
  throw IoError(path_, fmt::format("{}: {}", labelled("dataset", name_), what));
}

Hdf5Handle Hdf5Dataset::select(std::span<const std::int64_t> first,
                               std::span<const std::int64_t> count) const {
  const std::size_t rank = shape_.size();
  bool inside = first.size() == rank && count.size() == rank;
  for (std::size_t axis = 0; inside && axis < rank; ++axis) {
    inside = first[axis] >= 0 && count[axis] >= 0 && first[axis] <= shape_[axis] - count[axis];
  }
  if (!inside) {
    fail(fmt::format("{} elements from {} on asked for, but its shape is {}", shape_text(count),
                     shape_text(first), shape_text(shape_)));
  }
  Hdf5Handle space = own(H5Dget_space(handle_.get()), H5Sclose, path_, labelled("dataset", name_));
  if (rank == 0) return space;
  const std::vector<hsize_t> start(first.begin(), first.end());
  const std::vector<hsize_t> length(count.begin(), count.end());
  if (H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data(), nullptr, length.data(),
                          nullptr) < 0) {
    fail(stack_reason());
  }
  return space;
}

void Hdf5Dataset::check_chunks(const Hdf5Box& box) const {
  if (!chunk_check_) return;
  const std::string wrong = chunk_check_->check(handle_.get(), box);
  if (!wrong.empty()) fail(wrong);
}

// Beyond the end of a file that lost its tail HDF5 reads zeros, whose checksum is zero too.
void Hdf5Dataset::check_still_whole() const {
  void* descriptor = nullptr;
  struct stat status = {};
  if (H5Fget_vfd_handle(file_, H5P_DEFAULT, &descriptor) >= 0 && descriptor != nullptr &&
      fstat(*static_cast<int*>(descriptor), &status) == 0 && status.st_size < file_bytes_) {
    fail(fmt::format("the file is truncated: it has {} of the {} bytes it had when it was opened",
                     status.st_size, file_bytes_));
  }
}

template <typename T>
void Hdf5Dataset::read(std::int64_t first, std::span<T> values) const {
  const auto count = static_cast<std::int64_t>(values.size());
  read_box(std::span(&first, 1), std::span(&count, 1), values);
}

template <typename T>
void Hdf5Dataset::read_box(std::span<const std::int64_t> first, std::span<const std::int64_t> count,
                           std::span<T> values) const {
  const LibraryLock lock;
  const Hdf5Handle file_space = select(first, count);
  expect_size(count, values.size());
  if (values.empty()) return;
  if (type_.family == NumberFamily::Other) fail("does not hold numbers");
  if (virtual_) {
    virtual_->read(first, count, values);
    return;
  }
  check_chunks({{first.begin(), first.end()},
                std::vector<std::int64_t>(first.size(), 1),
                {count.begin(), count.end()}});
  const Hdf5Handle memory_space = packed_space(count, path_);
  if (H5Dread(handle_.get(), memory_type<T>(), memory_space.get(), file_space.get(), H5P_DEFAULT,
              values.data()) < 0) {
    fail(fmt::format("cannot read {} elements from {} on: {}", shape_text(count), shape_text(first),
                     stack_reason()));
  }
  check_still_whole();
}

template <typename T>
void Hdf5Dataset::read_steps(const Hdf5Box& origin, std::span<const std::int64_t> shape,
                             const Hdf5Box& target, std::span<T> values) const {
  const LibraryLock lock;
  const std::string label = labelled("dataset", name_);
  const auto choose = [&](hid_t space, const Hdf5Box& box) {
    const std::vector<hsize_t> first(box.first.begin(), box.first.end());
    const std::vector<hsize_t> step(box.step.begin(), box.step.end());
    const std::vector<hsize_t> count(box.count.begin(), box.count.end());
    check(H5Sselect_hyperslab(space, H5S_SELECT_SET, first.data(), step.data(), count.data(),
                              nullptr),
          path_, label);
  };
  check_chunks(origin);
  const Hdf5Handle file_space = own(H5Dget_space(handle_.get()), H5Sclose, path_, label);
  if (!shape_.empty()) choose(file_space.get(), origin);
  const Hdf5Handle memory_space = packed_space(shape, path_);
  choose(memory_space.get(), target);
  if (H5Dread(handle_.get(), memory_type<T>(), memory_space.get(), file_space.get(), H5P_DEFAULT,
              values.data()) < 0) {
    fail(fmt::format("cannot read {} elements from {} on: {}", shape_text(origin.count),
                     shape_text(origin.first), stack_reason()));
  }
  check_still_whole();
}

template <typename T>
std::vector<T> Hdf5Dataset::read_all(std::int64_t most) const {
  const std::int64_t elements = element_count(shape_);
  if (elements > most) {
    fail(fmt::format("has {} elements, {}; at most {} are read at once", elements,
                     shape_text(shape_), most));
  }
  std::vector<T> values(static_cast<std::size_t>(elements));
  const std::vector<std::int64_t> origin(shape_.size(), 0);
  read_box<T>(origin, shape_, values);
  return values;
}

std::vector<std::string> Hdf5Dataset::read_texts() const {
  const LibraryLock lock;
  const std::string label = labelled("dataset", name_);
  const Hdf5Handle type = own(H5Dget_type(handle_.get()), H5Tclose, path_, label);
  if (shape_.size() != 1 || H5Tget_class(type.get()) != H5T_STRING) {
    fail("is not a list of strings");
  }
  const std::int64_t count = shape_[0];
  if (count > most_texts || declared_bytes_ > most_text_bytes) {
    fail(fmt::format("has {} texts, {}; at most {}, {}, are read", count,
                     format_bytes(declared_bytes_), most_texts, format_bytes(most_text_bytes)));
  }
  std::vector<std::string> texts;
  if (count == 0) return texts;
  if (H5Tis_variable_str(type.get()) > 0) {
    expect(foreign_ != nullptr, "texts of a file that was opened again");
    texts = foreign_->ask(ForeignKind::DatasetTexts, path_, name_, "", label);
    std::transform(texts.begin(), texts.end(), texts.begin(), trimmed);
  } else {
    check_chunks({{0}, {1}, {count}});
    const std::size_t width = H5Tget_size(type.get());
    std::string bytes(width * static_cast<std::size_t>(count), '\0');
    check(H5Dread(handle_.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()), path_,
          label);
    for (std::size_t begin = 0; begin < bytes.size(); begin += width) {
      texts.push_back(trimmed(bytes.substr(begin, width)));
    }
  }
  check_still_whole();
  return texts;
}

template <typename T>
void Hdf5Dataset::write_box(std::span<const std::int64_t> first,
                            std::span<const std::int64_t> count, std::span<const T> values) {
  const LibraryLock lock;
  const Hdf5Handle file_space = select(first, count);
  expect_size(count, values.size());
  if (values.empty()) return;
  const Hdf5Handle memory_space = packed_space(count, path_);
  if (H5Dwrite(handle_.get(), memory_type<T>(), memory_space.get(), file_space.get(), H5P_DEFAULT,
               values.data()) < 0) {
    fail(fmt::format("cannot write: {}", stack_reason()));
  }
}

template <typename T>
void Hdf5Dataset::write(std::int64_t first, std::span<const T> values) {
  const auto count = static_cast<std::int64_t>(values.size());
  write_box(std::span(&first, 1), std::span(&count, 1), values);
}

template <typename T>
void Hdf5Dataset::append(std::span<const T> values) {
  if (values.empty()) return;
  const LibraryLock lock;
  if (shape_.size() != 1) fail(fmt::format("has {} dimensions, not 1", shape_.size()));
  const std::int64_t first = shape_[0];
  const hsize_t grown = static_cast<hsize_t>(first) + values.size();
  if (H5Dset_extent(handle_.get(), &grown) < 0)
    fail(fmt::format("cannot grow: {}", stack_reason()));
  shape_[0] = static_cast<std::int64_t>(grown);
  write(first, values);
}

#define GARONNE_FOR_ELEMENT(T)                                                             \
  template void Hdf5Dataset::read(std::int64_t, std::span<T>) const;                       \
  template void Hdf5Dataset::write(std::int64_t, std::span<const T>);                      \
  template void Hdf5Dataset::append(std::span<const T>);                                   \
  template void Hdf5Dataset::read_box(std::span<const std::int64_t>,                       \
                                      std::span<const std::int64_t>, std::span<T>) const;  \
  template void Hdf5Dataset::read_steps(const Hdf5Box&, std::span<const std::int64_t>,     \
                                        const Hdf5Box&, std::span<T>) const;               \
  template void Hdf5Dataset::write_box(std::span<const std::int64_t>,                      \
                                       std::span<const std::int64_t>, std::span<const T>); \
  template std::vector<T> Hdf5Dataset::read_all(std::int64_t) const;
GARONNE_FOR_ELEMENT(std::uint8_t)
GARONNE_FOR_ELEMENT(std::uint16_t)
GARONNE_FOR_ELEMENT(std::uint32_t)
GARONNE_FOR_ELEMENT(std::int32_t)
GARONNE_FOR_ELEMENT(std::int64_t)
GARONNE_FOR_ELEMENT(float)
GARONNE_FOR_ELEMENT(double)
#undef GARONNE_FOR_ELEMENT

}  // namespace garonne::data
