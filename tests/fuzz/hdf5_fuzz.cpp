// Every object of an HDF5 file by every function that reads one, whatever it is.
#include "fuzz/hdf5_target.hpp"

using namespace garonne;

namespace {

constexpr int most_depth = 4;
constexpr int most_objects = 64;

// Whether it was taken.
template <typename Action>
bool took(const Action& action) {
  bool done = false;
  fuzz::take_or_refuse([&] {
    action();
    done = true;
  });
  return done;
}

template <typename... Actions>
void each_for_itself(const Actions&... actions) {
  (fuzz::take_or_refuse(actions), ...);
}

void read_attributes(const data::Hdf5File& file, const std::string& object) {
  fuzz::take_or_refuse([&] {
    const data::Hdf5Attributes attributes = file.attributes(object);
    each_for_itself([&] { attributes.stored_text(); });
    for (const char* name : {"a", "b", "units"}) {
      // What is not there is refused by all in the same way.
      if (!took([&] { attributes.number(name); }) && !attributes.has(name)) continue;
      each_for_itself([&] { attributes.has_text(name); }, [&] { attributes.text(name); },
                      [&] { attributes.texts(name); }, [&] { attributes.numbers(name); },
                      [&] { attributes.truth(name, true); });
    }
  });
}

template <typename T>
bool read_values(const data::Hdf5Dataset& dataset) {
  constexpr std::int64_t most = 1 << 18;
  return took([&] {
    std::size_t elements = 1;
    for (const std::int64_t size : dataset.shape()) elements *= static_cast<std::size_t>(size);
    fuzz::hold(dataset.read_all<T>(most).size() == elements, "all elements are read");
  });
}

void read_dataset(const data::Hdf5File& file, const std::string& name) {
  fuzz::take_or_refuse([&] {
    const data::Hdf5Dataset dataset = file.dataset(name, data::VirtualData::Allowed);
    const std::vector<std::int64_t>& shape = dataset.shape();
    each_for_itself([&] { dataset.header_text(); }, [&] { dataset.hash_of_chunk(false); },
                    [&] { dataset.hash_of_chunk(true); }, [&] { dataset.read_texts(); },
                    [&] { data::storage_text(dataset); });
    // A virtual one of no elements has no sources.
    if (dataset.source_files() == 0 && dataset.declared_bytes() > 0)
      each_for_itself([&] { dataset.stored_bytes(); });
    if (read_values<float>(dataset)) {
      read_values<double>(dataset);
      read_values<std::int64_t>(dataset);
      read_values<std::uint8_t>(dataset);
      read_values<std::uint16_t>(dataset);
      read_values<std::uint32_t>(dataset);
      read_values<std::int32_t>(dataset);
    }
    // The last element alone, and one that is not there.
    for (const std::int64_t beyond : {0, 1}) {
      fuzz::take_or_refuse([&] {
        std::vector<std::int64_t> last;
        for (const std::int64_t size : shape) last.push_back(size - 1 + beyond);
        float value = 0;
        dataset.read_box<float>(last, std::vector<std::int64_t>(shape.size(), 1),
                                std::span(&value, 1));
      });
    }
  });
  fuzz::take_or_refuse([&] { file.dataset(name); });
  fuzz::take_or_refuse([&] { file.dimension_scales(name); });
}

void read_group(const data::Hdf5File& file, const std::string& group, int depth, int& left) {
  read_attributes(file, group);
  fuzz::take_or_refuse([&] {
    for (const std::string& name : file.datasets(group)) {
      if (--left < 0) return;
      const std::string path = group == "/" ? name : group + "/" + name;
      read_attributes(file, path);
      read_dataset(file, path);
    }
  });
  fuzz::take_or_refuse([&] {
    for (const std::string& name : file.groups(group)) {
      if (--left < 0 || depth == most_depth) return;
      read_group(file, group == "/" ? name : group + "/" + name, depth + 1, left);
    }
  });
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::Hdf5Input input(data, size);
  return fuzz::take_or_refuse([&] {
    const data::Hdf5File file = data::Hdf5File::open(input.path(), fuzz::foreign_reader());
    each_for_itself([&] { file.has_attribute("a"); }, [&] { file.string_attribute("a"); },
                    [&] { file.integer_attribute("a"); }, [&] { file.integer_attribute("b"); });
    // Names that links may stand for, and that may not be there.
    for (const char* name : {"a", "b", "c/d", "/"}) {
      fuzz::take_or_refuse([&] { file.has_group(name); });
      fuzz::take_or_refuse([&] { file.dataset(name, data::VirtualData::Allowed); });
    }
    int left = most_objects;
    read_group(file, "/", 0, left);
    // As a reader does that described it before, and so reads nothing that was refused then.
    const data::Hdf5File again = data::Hdf5File::open_again(input.path());
    for (const std::string& name : file.datasets()) {
      if (!took([&] { file.dataset(name, data::VirtualData::Allowed); })) continue;
      fuzz::take_or_refuse(
          [&] { read_values<float>(again.dataset(name, data::VirtualData::Allowed)); });
    }
  });
}
