// The program garonne-hdf5-reader: reads elements of variable length for another process, which
// asks through descriptor 0 (data/hdf5/hdf5_wire.hpp), within limits of time and memory. Whatever
// HDF5 does to it, the other process goes on.
#include <hdf5.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "data/hdf5/foreign_keeper.hpp"
#include "data/hdf5/guarded_memory.hpp"
#include "data/hdf5/hdf5_reason.hpp"
#include "data/hdf5/hdf5_wire.hpp"

namespace garonne::data {
namespace {

constexpr rlim_t most_memory = (rlim_t{1} << 30) + guarded_address_bytes;
// Of processor time, for a question or an object of a walk, beside those that the caller gives. And
// for a walk.
constexpr double seconds_per_byte = 1e-7;
constexpr double most_seconds = 20;
// Of a file of thousands of like groups the first ones tell enough.
constexpr std::size_t most_objects = 4096;
// Of groups in groups: a group may be in itself.
constexpr std::ptrdiff_t most_depth = 16;
constexpr std::size_t most_attribute_bytes = 1U << 20;
constexpr std::size_t most_element_bytes = 64;
constexpr hsize_t most_chunk_bytes = 16U << 20;

void set_limit(int what, rlim_t value) {
  const rlimit limit = {value, value};
  setrlimit(static_cast<__rlimit_resource_t>(what), &limit);
}

// Once: what it takes is there for all processes of files.
void prepare_program() {
  // What the other process has open is none of its business.
  for (int descriptor = 3; descriptor < 1024; ++descriptor) close(descriptor);
  set_limit(RLIMIT_CORE, 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  set_limit(RLIMIT_AS, most_memory);  // sanitizers reserve more than there is
#endif
  H5dont_atexit();
  H5open();
  // Memory goes through malloc, which fills it (foreign_reader.cpp).
  H5set_free_list_limits(0, 0, 0, 0, 0, 0);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  H5PLset_loading_state(0);
}

// Ends the process by SIGPROF after so many seconds of processor time; 0 = never.
void set_alarm(double seconds) {
  itimerval alarm = {};
  alarm.it_value.tv_sec = static_cast<time_t>(seconds);
  alarm.it_value.tv_usec = static_cast<suseconds_t>((seconds - std::floor(seconds)) * 1e6);
  setitimer(ITIMER_PROF, &alarm, nullptr);
}

// What remains of the time for a question, which has parts that each have their own.
class TimeLeft {
 public:
  explicit TimeLeft(double seconds_of_part)
      : seconds_of_part_(seconds_of_part), end_(now() + most_seconds) {}
  void begin_part() const {
    // A microsecond at least: none would be for ever.
    set_alarm(std::clamp(end_ - now(), 1e-3, seconds_of_part_));
  }

 private:
  static double now() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

  double seconds_of_part_;
  double end_;
};

struct Answer {
  ForeignState state = ForeignState::Failed;
  std::vector<std::string> texts;
  std::size_t bytes = 0;

  // False when it has become too long.
  bool add(const char* text) {
    texts.emplace_back(text == nullptr ? "" : text);
    bytes += sizeof(std::uint32_t) + texts.back().size();
    return bytes <= most_answer_bytes;
  }
};

std::string bytes_of(const Answer& answer) {
  std::string bytes;
  const auto append = [&](std::uint32_t number) {
    bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
  };
  append(static_cast<std::uint32_t>(answer.state));
  if (answer.state == ForeignState::Done) {
    append(static_cast<std::uint32_t>(answer.texts.size()));
    for (const std::string& text : answer.texts) {
      append(static_cast<std::uint32_t>(text.size()));
      bytes += text;
    }
  }
  return bytes;
}

// Closes what it holds.
struct Owned {
  hid_t identifier = -1;
  herr_t (*close)(hid_t) = nullptr;
  Owned(hid_t owned, herr_t (*closer)(hid_t)) : identifier(owned), close(closer) {}
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (identifier >= 0) close(identifier);
  }
};

std::size_t count_of(hid_t space) {
  const hssize_t count = H5Sget_simple_extent_npoints(space);
  return count < 0 || count > most_answer_bytes ? 0 : static_cast<std::size_t>(count);
}

Answer texts_of(hid_t type, hid_t space, auto read) {
  Answer answer;
  std::vector<char*> pointers(count_of(space), nullptr);
  if (H5Tis_variable_str(type) <= 0 || read(pointers.data()) < 0) return answer;
  answer.state = ForeignState::Done;
  for (char* pointer : pointers) {
    if (answer.state == ForeignState::Done && !answer.add(pointer)) {
      answer.state = ForeignState::TooLong;
    }
    H5free_memory(pointer);
  }
  return answer;
}

Answer attribute_texts(hid_t object, const std::string& name) {
  const Owned attribute(H5Aopen(object, name.c_str(), H5P_DEFAULT), H5Aclose);
  const Owned type(H5Aget_type(attribute.identifier), H5Tclose);
  const Owned space(H5Aget_space(attribute.identifier), H5Sclose);
  return texts_of(type.identifier, space.identifier, [&](void* values) {
    return H5Aread(attribute.identifier, type.identifier, values);
  });
}

Answer dataset_texts(hid_t dataset) {
  const Owned type(H5Dget_type(dataset), H5Tclose);
  const Owned space(H5Dget_space(dataset), H5Sclose);
  return texts_of(type.identifier, space.identifier, [&](void* values) {
    return H5Dread(dataset, type.identifier, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
  });
}

// The attribute is a list of references to datasets for each dimension.
Answer scales(hid_t object, const std::string& name) {
  Answer answer;
  const Owned attribute(H5Aopen(object, name.c_str(), H5P_DEFAULT), H5Aclose);
  const Owned type(H5Aget_type(attribute.identifier), H5Tclose);
  const Owned space(H5Aget_space(attribute.identifier), H5Sclose);
  const Owned element(H5Tget_super(type.identifier), H5Tclose);
  if (H5Tget_class(type.identifier) != H5T_VLEN ||
      H5Tget_class(element.identifier) != H5T_REFERENCE ||
      H5Tget_size(element.identifier) != sizeof(hobj_ref_t)) {
    return answer;
  }
  std::vector<hvl_t> lists(std::min<std::size_t>(count_of(space.identifier), H5S_MAX_RANK));
  if (H5Aread(attribute.identifier, type.identifier, lists.data()) < 0) return answer;
  for (const hvl_t& list : lists) {
    char path[1024] = {};
    if (list.len > 0) {
      const Owned scale(H5Rdereference2(object, H5P_DEFAULT, H5R_OBJECT, list.p), H5Oclose);
      if (scale.identifier < 0) return answer;
      if (H5Iget_name(scale.identifier, path, sizeof path) <= 0) return answer;
    }
    answer.add(path[0] == '/' ? path + 1 : path);
  }
  H5Dvlen_reclaim(type.identifier, space.identifier, H5P_DEFAULT, lists.data());
  answer.state = ForeignState::Done;
  return answer;
}

hsize_t attributes_of(hid_t object) {
  H5O_info_t info = {};
#if H5_VERSION_GE(1, 12, 0)
  const herr_t status = H5Oget_info3(object, &info, H5O_INFO_NUM_ATTRS);
#elif H5_VERSION_GE(1, 10, 3)
  const herr_t status = H5Oget_info2(object, &info, H5O_INFO_NUM_ATTRS);
#else
  const herr_t status = H5Oget_info(object, &info);
#endif
  return status < 0 ? 0 : std::min<hsize_t>(info.num_attrs, most_objects);
}

// Reads what can be read without heaps. False where HDF5 refused something, which is for those who
// need it.
bool try_attribute(hid_t object, hsize_t number) {
  const Owned attribute(
      H5Aopen_by_idx(object, ".", H5_INDEX_NAME, H5_ITER_INC, number, H5P_DEFAULT, H5P_DEFAULT),
      H5Aclose);
  if (attribute.identifier < 0) return false;
  const Owned type(H5Aget_type(attribute.identifier), H5Tclose);
  const Owned space(H5Aget_space(attribute.identifier), H5Sclose);
  const std::size_t width = H5Tget_size(type.identifier);
  const std::size_t count = count_of(space.identifier);
  if (width == 0 || count == 0 || width > most_attribute_bytes / count) return true;
  const H5T_class_t kind = H5Tget_class(type.identifier);
  const bool text = kind == H5T_STRING && H5Tis_variable_str(type.identifier) == 0;
  if (!text && kind != H5T_INTEGER && kind != H5T_FLOAT && kind != H5T_ENUM) return true;
  std::vector<char> bytes(width * count);
  return H5Aread(attribute.identifier, type.identifier, bytes.data()) >= 0;
}

// Looks up its first and its last chunk, and reads an element of each where there are some: the
// index of chunks may be of fewer than the dataset has. `stored`: some are.
bool try_chunks(hid_t dataset, const Owned& properties, hid_t type, hid_t space, bool stored) {
  const H5T_class_t kind = H5Tget_class(type);
  const int rank = H5Sget_simple_extent_ndims(space);
  if (rank < 1 || rank > H5S_MAX_RANK) return true;
  std::vector<hsize_t> extent(static_cast<std::size_t>(rank));
  std::vector<hsize_t> chunk(static_cast<std::size_t>(rank));
  H5Sget_simple_extent_dims(space, extent.data(), nullptr);
  if (H5Pget_chunk(properties.identifier, rank, chunk.data()) != rank) return true;
  hsize_t chunk_bytes = H5Tget_size(type);
  bool readable =
      stored && (kind == H5T_INTEGER || kind == H5T_FLOAT) && chunk_bytes <= most_element_bytes;
  for (std::size_t axis = 0; axis < extent.size(); ++axis) {
    if (extent[axis] == 0 || chunk[axis] == 0) return true;
    readable = readable && chunk_bytes <= most_chunk_bytes / chunk[axis];
    if (readable) chunk_bytes *= chunk[axis];
  }
  const hsize_t one = 1;
  const Owned memory(H5Screate_simple(1, &one, nullptr), H5Sclose);
  const std::vector<hsize_t> ones(extent.size(), 1);
  bool answered = true;
  for (const bool last : {true, false}) {
    std::vector<hsize_t> element(extent.size(), 0);
    std::vector<hsize_t> corner(extent.size(), 0);
    for (std::size_t axis = 0; last && axis < extent.size(); ++axis) {
      element[axis] = extent[axis] - 1;
      corner[axis] = element[axis] / chunk[axis] * chunk[axis];
    }
    hsize_t taken = 0;
    // Where nothing is stored there may be no index to look in.
    const bool found = H5Dget_chunk_storage_size(dataset, corner.data(), &taken) >= 0;
    answered = (found || !stored) && answered;
    if (!readable) continue;
    char value[most_element_bytes] = {};
    H5Sselect_hyperslab(space, H5S_SELECT_SET, element.data(), nullptr, ones.data(), nullptr);
    answered =
        H5Dread(dataset, type, memory.identifier, space, H5P_DEFAULT, value) >= 0 && answered;
  }
  return answered;
}

bool try_elements(hid_t dataset) {
  const Owned type(H5Dget_type(dataset), H5Tclose);
  const Owned space(H5Dget_space(dataset), H5Sclose);
  const Owned properties(H5Dget_create_plist(dataset), H5Pclose);
  const H5D_layout_t layout = H5Pget_layout(properties.identifier);
#if H5_VERSION_GE(1, 10, 5)
  hsize_t chunks = 0;
  if (layout == H5D_CHUNKED && H5Dget_num_chunks(dataset, space.identifier, &chunks) < 0)
    return false;
#endif
  if (layout == H5D_VIRTUAL) return true;  // its elements are elsewhere
  const bool stored = H5Dget_storage_size(dataset) > 0;
  H5Dget_offset(dataset);
  return layout != H5D_CHUNKED ||
         try_chunks(dataset, properties, type.identifier, space.identifier, stored);
}

// Where the elements of a virtual dataset lie is in a heap.
Answer try_opening(hid_t object) {
  if (H5Iget_type(object) == H5I_DATASET) {
    const Owned properties(H5Dget_create_plist(object), H5Pclose);
    std::size_t sources = 0;
    if (H5Pget_layout(properties.identifier) == H5D_VIRTUAL &&
        H5Pget_virtual_count(properties.identifier, &sources) >= 0) {
      std::vector<char> name(most_request_bytes);
      for (std::size_t index = 0; index < sources; ++index) {
        H5Pget_virtual_filename(properties.identifier, index, name.data(), name.size());
        H5Pget_virtual_dsetname(properties.identifier, index, name.data(), name.size());
        const Owned here(H5Pget_virtual_vspace(properties.identifier, index), H5Sclose);
        const Owned there(H5Pget_virtual_srcspace(properties.identifier, index), H5Sclose);
      }
    }
  }
  // What cannot be opened is refused by who wants it.
  Answer answer;
  answer.state = ForeignState::Done;
  return answer;
}

herr_t note_name(hid_t, const char* name, const H5L_info_t* link, void* names) {
  if (link->type == H5L_TYPE_HARD) static_cast<std::vector<std::string>*>(names)->push_back(name);
  return 0;
}

// Never empty, which would mean that a file opens.
std::string why_refused() {
  const std::string reason = innermost_description();
  return reason.empty() ? "HDF5 gave no reason" : reason;
}

hid_t open_file(const std::string& path) {
  const Owned access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
#if H5_VERSION_GE(1, 10, 7) && !(H5_VERS_MAJOR == 1 && H5_VERS_MINOR == 12 && H5_VERS_RELEASE == 0)
  H5Pset_file_locking(access.identifier, false, true);
#endif
  return H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.identifier);
}

// The file that is asked about.
class OpenFile {
 public:
  explicit OpenFile(double least_seconds) : least_seconds_(least_seconds) {}

  std::string answer(const ForeignQuestion& question) {
    const TimeLeft time(seconds_of_part(question.path));
    time.begin_part();
    Answer answer;
    if (question.kind == ForeignKind::Closing) {
      close_file();
    } else {
      if (file_ < 0) file_ = open_file(question.path);
      answer = question.kind == ForeignKind::Structure ? walk(question.path, time)
                                                       : answer_about_object(question);
    }
    set_alarm(0);
    return bytes_of(answer);
  }

 private:
  double seconds_of_part(const std::string& path) const {
    struct stat status = {};
    if (stat(path.c_str(), &status) != 0) return least_seconds_;
    const double seconds = least_seconds_ + seconds_per_byte * static_cast<double>(status.st_size);
    return std::min(seconds, most_seconds);
  }

  Answer walk(const std::string& path, const TimeLeft& time) {
    Answer answer;
    if (file_ < 0) {
      answer.state = ForeignState::Done;
      answer.add(why_refused().c_str());
      return answer;
    }
    if (!try_structure(path, time, AfterRefusal::GoOn)) {
      open_anew(path);
      try_structure(path, time, AfterRefusal::OpenAnew);
    }
    // That, too, is done by who reads it then.
    time.begin_part();
    close_file();
    answer.state = ForeignState::Done;
    return answer;
  }

  // What HDF5 refused changes what it does afterwards: it may answer the next time, or crash where
  // it has not taken memory for another address that is not there. Who reads the file may ask in
  // any order.
  enum class AfterRefusal { GoOn, OpenAnew };

  // Walks through groups from the root, level by level. Whether nothing was refused.
  bool try_structure(const std::string& file, const TimeLeft& time, AfterRefusal after) {
    bool all_answered = true;
    const auto attempt = [&](const std::string& path, const auto& try_it) {
      if (try_object(path, time, try_it)) return;
      all_answered = false;
      if (after == AfterRefusal::OpenAnew) open_anew(file);
    };
    std::vector<std::string> paths = {"/"};
    for (std::size_t next = 0; next < paths.size() && next < most_objects; ++next) {
      const std::string path = paths[next];
      H5I_type_t kind = H5I_BADID;
      hsize_t attributes = 0;
      attempt(path, [&](hid_t object) {
        kind = H5Iget_type(object);
        // Looks at all of them, also where their number is not known.
        const bool answered = H5Aexists(object, "?") >= 0;
        attributes = attributes_of(object);
        return answered;
      });
      // Of those behind one that is refused, too.
      for (hsize_t number = 0; number < attributes; ++number) {
        attempt(path, [&](hid_t object) {
          for (; number < attributes; ++number) {
            time.begin_part();
            if (!try_attribute(object, number)) return false;
          }
          return true;
        });
      }
      if (kind == H5I_DATASET) attempt(path, try_elements);
      if (kind != H5I_GROUP || paths.size() >= most_objects ||
          std::count(path.begin(), path.end(), '/') > most_depth) {
        continue;
      }
      std::vector<std::string> names;
      attempt(path, [&](hid_t object) {
        hsize_t place = 0;
        names.clear();
        return H5Literate(object, H5_INDEX_NAME, H5_ITER_INC, &place, note_name, &names) >= 0;
      });
      for (const std::string& name : names)
        paths.push_back(path == "/" ? path + name : path + "/" + name);
    }
    return all_answered;
  }

  // Asks once more where HDF5 refused.
  template <typename Try>
  bool try_object(const std::string& path, const TimeLeft& time, const Try& try_it) {
    for (int turn = 0; turn < 2; ++turn) {
      time.begin_part();
      const Owned object(H5Oopen(file_, path.c_str(), H5P_DEFAULT), H5Oclose);
      if (object.identifier >= 0 && try_it(object.identifier)) return true;
    }
    return false;
  }

  void open_anew(const std::string& path) {
    close_file();
    file_ = open_file(path);
  }

  void close_file() {
    if (file_ >= 0) H5Fclose(file_);
    file_ = -1;
  }

  Answer answer_about_object(const ForeignQuestion& question) const {
    const Owned object(H5Oopen(file_, question.object.c_str(), H5P_DEFAULT), H5Oclose);
    switch (question.kind) {
      case ForeignKind::Opening:
        return try_opening(object.identifier);
      case ForeignKind::AttributeTexts:
        if (object.identifier >= 0) return attribute_texts(object.identifier, question.attribute);
        break;
      case ForeignKind::DatasetTexts:
        if (object.identifier >= 0) return dataset_texts(object.identifier);
        break;
      case ForeignKind::Scales:
        if (object.identifier >= 0) return scales(object.identifier, question.attribute);
        break;
      case ForeignKind::Structure:
      case ForeignKind::Closing:
        break;
    }
    return {};
  }

  double least_seconds_;
  hid_t file_ = -1;
};

}  // namespace
}  // namespace garonne::data

// Its argument: the seconds that a question has at least.
int main(int count, char** arguments) {
  using namespace garonne::data;
  const double least_seconds = count == 2 ? std::strtod(arguments[1], nullptr) : 0;
  if (!(least_seconds > 0)) return EXIT_FAILURE;
  prepare_program();
  OpenFile file(least_seconds);  // of each process its own
  const int code = keep_answering(
      guard_memory, [&](const ForeignQuestion& question) { return file.answer(question); });
  // Without what HDF5 and others do at an end.
  _exit(code);
}
