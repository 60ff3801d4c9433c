#include "fuzz/hdf5_recipe.hpp"

#include <hdf5.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "data/hdf5/hdf5_internal.hpp"
#include "fuzz/hdf5_damage.hpp"
#include "fuzz/hdf5_types.hpp"
#include "fuzz/hdf5_words.hpp"

namespace garonne::fuzz {
namespace {

constexpr std::size_t most_lines = 200;
constexpr std::size_t most_elements = 1 << 14;  // that are written
constexpr std::size_t most_bytes = 1 << 20;     // likewise
constexpr std::size_t most_chunks = 1024;

// A literal run after the other, as LZF has them.
std::string lzf_of(const std::string& bytes) {
  std::string packed;
  for (std::size_t begin = 0; begin < bytes.size(); begin += 32) {
    const std::size_t count = std::min<std::size_t>(32, bytes.size() - begin);
    packed += static_cast<char>(count - 1);
    packed += bytes.substr(begin, count);
  }
  return packed;
}

// Names of files beside the first one: nothing is written elsewhere.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name.size() < 100 && name[0] != '.' &&
         name.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
             std::string::npos;
}

// One HDF5 file, made line by line.
class Maker {
 public:
  Maker(std::string path, bool old) : path_(std::move(path)) {
    const Owned access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
    if (!old) H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_LATEST);
    file_ = H5Fcreate(path_.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access);
  }
  Maker(const Maker&) = delete;
  Maker& operator=(const Maker&) = delete;

  void take(const Words& words, std::string_view line);
  // Nothing can be done after it.
  void finish() {
    make_virtual();
    H5Fclose(file_);
    do_damage(path_, damages_);
  }

 private:
  struct Virtual {
    std::string name;
    std::string type;
    Extent extent;
    std::vector<Words> maps;
  };

  void array(const Words& words);
  void fill(hid_t dataset, hid_t type, const Extent& extent, const Words& words, std::size_t next);
  void store(const Words& words) const;
  void texts(const Words& words, bool any_length) const;
  void attribute_of_text(const std::string& object, const std::string& name,
                         const std::string& text, bool any_length) const;
  void attribute_of_numbers(const Words& words) const;
  void attribute(const std::string& object, const std::string& name, hid_t type, hid_t space,
                 hid_t memory, const void* values) const;
  void scales(const Words& words) const;
  void make_virtual();

  std::string path_;
  hid_t file_ = -1;
  std::vector<Damage> damages_;
  Virtual virtual_;
};

void Maker::take(const Words& words, std::string_view line) {
  const std::string& command = words[0];
  if (command == "map") {
    if (words.size() >= 6) virtual_.maps.push_back(words);
    return;
  }
  make_virtual();
  if (words.size() < 2) return;
  const std::string& name = words[1];
  if (command == "group") {
    const Owned made(H5Gcreate2(file_, name.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
                     H5Gclose);
  } else if (command == "put" || command == "spoil" || command == "cut") {
    damages_.push_back({command, name, words.size() > 2 ? bytes_of(words[2]) : ""});
  } else if (command == "texts" || command == "long-texts") {
    texts(words, command == "long-texts");
  }
  if (words.size() < 3) return;
  const std::string& second = words[2];
  if (command == "array" && words.size() >= 4) array(words);
  if (command == "store" && words.size() >= 5) store(words);
  if (command == "text" || command == "long-text")
    attribute_of_text(name, second, rest_of(line, 3), command == "long-text");
  if (command == "number" && words.size() >= 4) attribute_of_numbers(words);
  if (command == "scales") scales(words);
  if (command == "virtual" && words.size() >= 4) virtual_ = {name, second, extent_of(words[3]), {}};
  if (command == "soft")
    H5Lcreate_soft(second.c_str(), file_, name.c_str(), H5P_DEFAULT, H5P_DEFAULT);
  if (command == "hard")
    H5Lcreate_hard(file_, second.c_str(), file_, name.c_str(), H5P_DEFAULT, H5P_DEFAULT);
  if (command == "external" && words.size() >= 4) {
    H5Lcreate_external(second.c_str(), words[3].c_str(), file_, name.c_str(), H5P_DEFAULT,
                       H5P_DEFAULT);
  }
}

void Maker::array(const Words& words) {
  const Owned type(type_of(words[2]), H5Tclose);
  const Owned space(space_of(words[3]), H5Sclose);
  const Owned properties(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  const Owned links(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
  H5Pset_create_intermediate_group(links, 1);
  Extent extent;
  if (words[3] != "scalar" && words[3] != "null") extent = extent_of(words[3]);
  const std::size_t elements = words[3] == "null" ? 0 : elements_of(extent);
  bool packed = false;
  bool narrowed = false;
  // What is not: others' files, and what takes long.
  bool written = elements > 0 && elements <= most_elements &&
                 elements * std::max<std::size_t>(H5Tget_size(type), 1) <= most_bytes;
  std::size_t next = 4;
  for (; next < words.size() && words[next] != "=" && words[next] != "from"; ++next) {
    const std::string& option = words[next];
    const std::string after = next + 1 < words.size() ? words[next + 1] : "";
    packed = packed || option == "packed";
    if (option == "chunk") {
      const Extent chunk = extent_of(after);
      H5Pset_chunk(properties, static_cast<int>(chunk.size()), chunk.data());
      const std::size_t size = std::max<std::size_t>(elements_of(chunk), 1);
      written = written && size <= most_elements && elements / size <= most_chunks;
    } else if (option == "deflate") {
      H5Pset_deflate(properties, 4);
    } else if (option == "shuffle") {
      H5Pset_shuffle(properties);
    } else if (option == "fletcher32") {
      H5Pset_fletcher32(properties);
    } else if (option == "nbit") {
      // Twice, it has no parameters the second time, and crashes without them.
      if (!narrowed) H5Pset_nbit(properties);
      narrowed = true;
    } else if (option == "lzf" || option == "packed") {
      const auto bytes = static_cast<unsigned>(elements * H5Tget_size(type));
      const unsigned values[] = {
          4, 0x0105, number_of(after) > 0 ? static_cast<unsigned>(number_of(after)) : bytes};
      H5Pset_filter(properties, data::lzf_filter, H5Z_FLAG_OPTIONAL, 3, values);
    } else if (option == "filter") {
      // The library's own have parameters of theirs.
      H5Pset_filter(properties, static_cast<H5Z_filter_t>(256 + number_of(after) % 65280),
                    H5Z_FLAG_OPTIONAL, 0, nullptr);
    } else if (option == "compact" && H5Pget_external_count(properties) == 0) {
      H5Pset_layout(properties, H5D_COMPACT);
    } else if (option == "external" && H5Pget_layout(properties) == H5D_CONTIGUOUS) {
      H5Pset_external(properties, "elsewhere", 0, H5F_UNLIMITED);
      written = false;
    } else if (option == "early" && elements <= most_elements) {
      H5Pset_alloc_time(properties, H5D_ALLOC_TIME_EARLY);
    }
  }
  const Owned dataset(
      H5Dcreate2(file_, words[1].c_str(), type, space, links, properties, H5P_DEFAULT), H5Dclose);
  if (dataset < 0 || !written || next >= words.size()) return;
  if (packed) {
    const std::string bytes(elements * H5Tget_size(type), static_cast<char>(words.size()));
    const std::string stored = lzf_of(bytes);
    const Extent corner(std::max<std::size_t>(extent.size(), 1), 0);
    H5Dwrite_chunk(dataset, H5P_DEFAULT, 0, corner.data(), stored.size(), stored.data());
    return;
  }
  fill(dataset, type, extent, words, next);
}

// By words[next] on: "= VALUE…", again and again, or "from FIRST STEP".
void Maker::fill(hid_t dataset, hid_t type, const Extent& extent, const Words& words,
                 std::size_t next) {
  const std::size_t elements = elements_of(extent);
  const bool steps = words[next] == "from";
  if (!holds_numbers(type)) {
    if (has_heap(type)) return;
    std::string bytes(elements * H5Tget_size(type), '\0');
    for (std::size_t index = 0; index < bytes.size() && next + 1 < words.size(); ++index)
      bytes[index] = words[next + 1][index % words[next + 1].size()];
    H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data());
    return;
  }
  std::vector<double> given;
  for (std::size_t word = next + 1; word < words.size(); ++word)
    given.push_back(real_of(words[word]));
  if (given.empty()) given.push_back(0);
  given.resize(std::max<std::size_t>(given.size(), steps ? 2 : 1), 1);
  std::vector<double> values(elements);
  for (std::size_t index = 0; index < elements; ++index) {
    values[index] =
        steps ? given[0] + given[1] * static_cast<double>(index) : given[index % given.size()];
  }
  H5Dwrite(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
}

void Maker::store(const Words& words) const {
  const Owned dataset(H5Dopen2(file_, words[1].c_str(), H5P_DEFAULT), H5Dclose);
  const Owned properties(H5Dget_create_plist(dataset), H5Pclose);
  const Owned space(H5Dget_space(dataset), H5Sclose);
  Extent chunk(most_rank);
  Extent extent(most_rank);
  const int rank = H5Pget_chunk(properties, static_cast<int>(most_rank), chunk.data());
  if (rank < 1 || H5Sget_simple_extent_dims(space, extent.data(), nullptr) != rank) return;
  std::uint64_t number = number_of(words[2]);
  Extent corner(static_cast<std::size_t>(rank));
  for (std::size_t axis = corner.size(); axis-- > 0;) {
    if (extent[axis] == 0) return;  // HDF5 would write somewhere
    const hsize_t chunks = (extent[axis] - 1) / chunk[axis] + 1;
    corner[axis] = number % chunks * chunk[axis];
    number /= chunks;
  }
  const std::string bytes = bytes_of(words[4]);
  H5Dwrite_chunk(dataset, H5P_DEFAULT, static_cast<std::uint32_t>(number_of(words[3])),
                 corner.data(), bytes.size(), bytes.data());
}

void Maker::texts(const Words& words, bool any_length) const {
  std::size_t width = 1;
  for (std::size_t word = 2; word < words.size(); ++word)
    width = std::max(width, words[word].size());
  const Owned type(text_type(any_length ? 0 : width), H5Tclose);
  const hsize_t count = words.size() - 2;
  const Owned space(H5Screate_simple(1, &count, nullptr), H5Sclose);
  const Owned links(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
  H5Pset_create_intermediate_group(links, 1);
  const Owned dataset(
      H5Dcreate2(file_, words[1].c_str(), type, space, links, H5P_DEFAULT, H5P_DEFAULT), H5Dclose);
  if (count == 0) return;
  std::vector<const char*> pointers;
  std::string bytes;
  for (std::size_t word = 2; word < words.size(); ++word) {
    pointers.push_back(words[word].c_str());
    bytes += words[word] + std::string(width - words[word].size(), '\0');
  }
  H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT,
           any_length ? static_cast<const void*>(pointers.data()) : bytes.data());
}

void Maker::attribute(const std::string& object, const std::string& name, hid_t type, hid_t space,
                      hid_t memory, const void* values) const {
  const Owned owner(H5Oopen(file_, object.c_str(), H5P_DEFAULT), H5Oclose);
  const Owned made(H5Acreate2(owner, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT),
                   H5Aclose);
  if (made >= 0 && values != nullptr) H5Awrite(made, memory, values);
}

void Maker::attribute_of_text(const std::string& object, const std::string& name,
                              const std::string& text, bool any_length) const {
  const std::string shown = text.substr(0, most_text);
  const Owned type(text_type(any_length ? 0 : std::max<std::size_t>(1, shown.size())), H5Tclose);
  const Owned space(H5Screate(H5S_SCALAR), H5Sclose);
  const char* pointer = shown.c_str();
  attribute(object, name, type, space, type,
            any_length ? static_cast<const void*>(&pointer) : pointer);
}

void Maker::attribute_of_numbers(const Words& words) const {
  const Owned type(type_of(words[3]), H5Tclose);
  std::size_t next = 4;
  std::size_t count = words.size() - next;
  if (words.size() > 5 && words[4] == "times") {
    next = 6;
    count = std::min<std::size_t>(number_of(words[5]), most_attribute_elements);
  }
  const hsize_t size = count;
  const Owned space(count == 1 ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &size, nullptr),
                    H5Sclose);
  if (!holds_numbers(type)) {
    const auto word_at = [&](std::size_t index) -> const std::string& {
      return words[next + index % (words.size() - next)];
    };
    if (next >= words.size() || (has_heap(type) && H5Tis_variable_str(type) <= 0)) count = 0;
    const std::size_t width = H5Tget_size(type);
    if (width == 0) return;
    std::string bytes;
    for (std::size_t index = 0; index < std::min<std::size_t>(count, most_bytes / (width + 1));
         ++index) {
      const std::string& word = word_at(index);
      std::string element = H5Tget_class(type) == H5T_STRING
                                ? word.substr(0, width)
                                : std::string(1, static_cast<char>(number_of(word)));
      if (H5Tis_variable_str(type) > 0) {
        const char* pointer = word.c_str();
        element.assign(reinterpret_cast<const char*>(&pointer), sizeof pointer);
      }
      bytes += element + std::string(width - element.size(), '\0');
    }
    const bool written = count > 0 && bytes.size() == count * width;
    attribute(words[1], words[2], type, space, type, written ? bytes.data() : nullptr);
    return;
  }
  std::vector<double> values(count);
  for (std::size_t index = 0; index < count && next < words.size(); ++index)
    values[index] = real_of(words[next + index % (words.size() - next)]);
  attribute(words[1], words[2], type, space, H5T_NATIVE_DOUBLE,
            count > 0 ? values.data() : nullptr);
}

void Maker::scales(const Words& words) const {
  const std::size_t count = words.size() - 2;
  std::vector<hobj_ref_t> references(count);
  std::vector<hvl_t> lists(count);
  for (std::size_t axis = 0; axis < count; ++axis) {
    const bool found =
        words[axis + 2] != "-" &&
        H5Rcreate(&references[axis], file_, words[axis + 2].c_str(), H5R_OBJECT, -1) >= 0;
    lists[axis] = {found ? 1U : 0U, found ? &references[axis] : nullptr};
  }
  const Owned type(H5Tvlen_create(H5T_STD_REF_OBJ), H5Tclose);
  const hsize_t size = count;
  const Owned space(H5Screate_simple(1, &size, nullptr), H5Sclose);
  attribute(words[1], "DIMENSION_LIST", type, space, type, lists.data());
}

void Maker::make_virtual() {
  if (virtual_.name.empty()) return;
  const Owned type(type_of(virtual_.type), H5Tclose);
  const Owned space(selection_of("all", virtual_.extent), H5Sclose);
  const Owned properties(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  H5Pset_layout(properties, H5D_VIRTUAL);
  for (const Words& map : virtual_.maps) {
    const Owned here(selection_of(map[1], virtual_.extent), H5Sclose);
    const Owned there(selection_of(map[5], extent_of(map[4])), H5Sclose);
    H5Pset_virtual(properties, here, map[2].c_str(), map[3].c_str(), there);
  }
  const Owned dataset(
      H5Dcreate2(file_, virtual_.name.c_str(), type, space, H5P_DEFAULT, properties, H5P_DEFAULT),
      H5Dclose);
  virtual_ = {};
}

// A filter that may fail, and does: what is to be stored stays as it is.
std::size_t compresses_nothing(unsigned, std::size_t, const unsigned*, std::size_t, std::size_t*,
                               void**) {
  return 0;
}

void write_beside(const std::string& folder, const std::string& name, const std::string& text) {
  const bool nested = name.rfind("metadata/", 0) == 0;
  if (!is_plain_name(nested ? name.substr(9) : name)) return;
  // There may be a file of that name; then nothing is written.
  std::error_code ignored;
  if (nested) std::filesystem::create_directory(folder + "/metadata", ignored);
  write_file(folder + "/" + name, text);
}

}  // namespace

MadeFiles make_hdf5_files(std::string_view recipe, const std::string& folder) {
  const data::LibraryLock lock;
  // Each open file has a table of half a megabyte, which the library else asks for anew.
  constexpr int most_free = 1 << 26;
  [[maybe_unused]] static const herr_t kept =
      H5set_free_list_limits(most_free, most_free, most_free, most_free, most_free, most_free);
  // HDF5 makes no dataset of a filter that it knows to be for reading only. In its place, since to
  // take one away HDF5 goes through all files, and not all that failed to open are whole.
  static const H5Z_class2_t for_writing = {
      H5Z_CLASS_T_VERS, data::lzf_filter, 1, 1, "lzf", nullptr, nullptr, compresses_nothing};
  H5Zregister(&for_writing);
  MadeFiles made{folder + "/input.h5", false};
  std::vector<std::string_view> lines;
  for (std::size_t begin = 0; begin < recipe.size() && lines.size() < most_lines;) {
    const std::size_t end = std::min(recipe.find('\n', begin), recipe.size());
    lines.push_back(recipe.substr(begin, end - begin));
    begin = end + 1;
  }
  bool old = false;
  for (const std::string_view line : lines) old = old || line == "old";
  auto maker = std::make_unique<Maker>(made.path, old);
  for (const std::string_view line : lines) {
    const Words words = words_of(line);
    if (words.empty()) continue;
    if (words[0] == "by-path") made.by_path = true;
    if (words[0] == "beside" && words.size() > 1) write_beside(folder, words[1], rest_of(line, 2));
    if (words[0] == "into" && words.size() > 1 && is_plain_name(words[1])) {
      maker->finish();
      maker = std::make_unique<Maker>(folder + "/" + words[1], old);
      continue;
    }
    maker->take(words, line);
  }
  maker->finish();
  maker.reset();
  H5Eclear2(H5E_DEFAULT);
  data::register_lzf();
  return made;
}

}  // namespace garonne::fuzz
