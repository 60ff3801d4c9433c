#include "data/hdf5/hdf5_virtual.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/error.hpp"
#include "base/printable.hpp"
#include "data/hdf5/hdf5_internal.hpp"
#include "data/hdf5/hdf5_selection.hpp"

namespace garonne::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t most_open_sources = 32;
// Of chunks, for all sources that are open.
constexpr std::int64_t cache_of_sources = std::int64_t{64} << 20;
constexpr std::int64_t smallest_cache = std::int64_t{1} << 20;

std::string name_of(hid_t properties, std::size_t index,
                    ssize_t (*get)(hid_t, std::size_t, char*, std::size_t)) {
  const ssize_t length = get(properties, index, nullptr, 0);
  if (length <= 0 || length > 4096) return "";
  std::string name(static_cast<std::size_t>(length) + 1, '\0');
  get(properties, index, name.data(), name.size());
  name.pop_back();
  return name;
}

}  // namespace

VirtualSources::VirtualSources(std::int64_t properties, std::string path, std::string name,
                               std::span<const std::int64_t> shape,
                               std::shared_ptr<ForeignReader> foreign)
    : path_(std::move(path)), name_(std::move(name)) {
  const std::string label = labelled("dataset", name_);
  if (shape.empty()) fail("is virtual and has no dimensions");
  std::size_t mappings = 0;
  check(H5Pget_virtual_count(properties, &mappings), path_, label);
  if (mappings > most_parts)
    fail(fmt::format("has {} sources; at most {} are read", mappings, most_parts));
  for (std::size_t index = 0; index < mappings; ++index) {
    const std::size_t source = add_source(name_of(properties, index, H5Pget_virtual_filename),
                                          name_of(properties, index, H5Pget_virtual_dsetname));
    const Hdf5Handle here = own(H5Pget_virtual_vspace(properties, index), H5Sclose, path_, label);
    const Hdf5Handle there =
        own(H5Pget_virtual_srcspace(properties, index), H5Sclose, path_, label);
    add_parts(here.get(), there.get(), source, shape);
  }
  check_coverage(shape);
  if (foreign) check_sources(foreign);
}

void VirtualSources::fail(const std::string& what) const {
  throw IoError(path_, fmt::format("{}: {}", labelled("dataset", name_), what));
}

// Where HDF5 would look: beside the file, then in the working directory; of a file that has moved,
// as into a container, under its last name beside the virtual one.
std::string VirtualSources::find(const std::string& file) const {
  std::vector<fs::path> places;
  const fs::path folder = fs::path(path_).parent_path();
  const fs::path named = file;
  if (named.is_absolute()) {
    places = {named, folder / named.filename()};
  } else {
    std::error_code ignored;
    const fs::path real = fs::canonical(path_, ignored);
    places = {folder / named, named};
    if (!real.empty() &&
        !fs::equivalent(real.parent_path(), folder.empty() ? "." : folder, ignored))
      places.push_back(real.parent_path() / named);
  }
  for (const fs::path& place : places) {
    struct stat status = {};
    if (stat(place.c_str(), &status) == 0) return place.string();
  }
  std::vector<std::string> texts;
  for (const fs::path& place : places) texts.push_back(printable(place.string()));
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  fail(
      fmt::format("its source \"{}\" is missing: there is no {}; put it there, or make this file "
                  "again (HDF5 itself would give fill values in its place)",
                  printable(file), fmt::join(texts, " and no ")));
}

std::size_t VirtualSources::add_source(const std::string& file, const std::string& dataset) {
  if (file.empty() || dataset.empty()) fail("has a source without a name");
  for (const std::string& name : {file, dataset}) {
    if (name.find('%') == std::string::npos) continue;
    fail(fmt::format("its sources are numbered by the pattern \"{}\"; name them one by one",
                     printable(name)));
  }
  const auto [known, is_new] = by_name_.try_emplace({file, dataset}, sources_.size());
  if (!is_new) return known->second;
  Source source = {file, file == "." ? path_ : find(file), dataset, 0};
  struct stat status = {};
  if (stat(source.path.c_str(), &status) == 0) source.bytes = status.st_size;
  const auto [same, alone] = by_path_.try_emplace({source.path, dataset}, sources_.size());
  if (!alone) {
    fail(fmt::format(
        "its sources \"{}\" and \"{}\" would both be {}: make this file again with names "
        "that are right here",
        printable(sources_[same->second].named), printable(file), printable(source.path)));
  }
  sources_.push_back(std::move(source));
  return sources_.size() - 1;
}

void VirtualSources::add_parts(std::int64_t here, std::int64_t there, std::size_t source,
                               std::span<const std::int64_t> shape) {
  const std::string named = printable(sources_[source].named);
  IndexGrid target = grid_of(here);
  if (H5Sget_select_type(here) == H5S_SEL_ALL) {
    target.assign(shape.size(), {});
    for (std::size_t axis = 0; axis < shape.size(); ++axis) target[axis] = {{0, 1, shape[axis]}};
  }
  Part part;
  part.source = source;
  part.whole = H5Sget_select_type(there) == H5S_SEL_ALL;
  IndexGrid origin = part.whole ? IndexGrid() : grid_of(there);
  if (target.size() != shape.size() || (!part.whole && origin.empty())) {
    fail(
        fmt::format("what it takes of its source \"{}\" is not so many rows and columns, or grows "
                    "with the source; that is not read",
                    named));
  }
  IndexGrid moving;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    for (const Steps& run : target[axis]) {
      if (run.count >= 1 && run.step >= 1 && run.start >= 0 && run.start < shape[axis] &&
          run.count - 1 <= (shape[axis] - 1 - run.start) / run.step) {
        continue;
      }
      fail(fmt::format("what it takes of its source \"{}\" lies outside its own shape {}", named,
                       shape_text(shape)));
    }
    part.here.push_back(target[axis][0]);
    if (length_of(target[axis]) == 1) continue;
    part.moving.push_back(static_cast<int>(axis));
    moving.push_back(target[axis]);
  }
  IndexGrid followed;
  for (const std::vector<Steps>& runs : origin) {
    for (const Steps& run : runs) {
      constexpr std::int64_t most = std::int64_t{1} << 62;
      if (run.count < 1 || run.step < 1 || run.start < 0 || run.start > most ||
          run.count - 1 > (most - run.start) / run.step) {
        fail(fmt::format("what it takes of its source \"{}\" is damaged", named));
      }
    }
    const bool moves = length_of(runs) != 1;
    part.fixed.push_back(moves ? -1 : runs[0].start);
    if (moves) followed.push_back(runs);
  }
  if (part.whole) {
    for (const std::vector<Steps>& runs : moving) followed.push_back({{0, 1, length_of(runs)}});
  }
  for (const std::vector<Steps>& run : moving) part.lengths.push_back(length_of(run));
  bool alike = followed.size() == moving.size();
  for (std::size_t axis = 0; alike && axis < moving.size(); ++axis) {
    alike = length_of(followed[axis]) == part.lengths[axis];
  }
  if (!alike) {
    fail(
        fmt::format("what it takes of its source \"{}\" has another shape there than here", named));
  }

  add_combinations(part, moving, followed);
}

// One part for each combination of runs.
void VirtualSources::add_combinations(Part part, const IndexGrid& moving,
                                      const IndexGrid& followed) {
  std::vector<std::vector<std::pair<Steps, Steps>>> runs;
  std::size_t parts = 1;
  for (std::size_t axis = 0; axis < moving.size(); ++axis) {
    runs.push_back(aligned(moving[axis], followed[axis]));
    parts *= std::min(runs.back().size(), most_parts + 1);
    if (parts_.size() + parts > most_parts) {
      fail(fmt::format("is put together of more than {} pieces", most_parts));
    }
  }
  part.there.resize(moving.size());
  for (std::size_t number = 0; number < parts; ++number) {
    std::size_t rest = number;
    for (std::size_t axis = moving.size(); axis-- > 0;) {
      const auto& [target_run, origin_run] = runs[axis][rest % runs[axis].size()];
      rest /= runs[axis].size();
      part.here[static_cast<std::size_t>(part.moving[axis])] = target_run;
      part.there[axis] = origin_run;
    }
    parts_.push_back(part);
  }
}

void VirtualSources::check_coverage(std::span<const std::int64_t> shape) {
  double declared = 1;
  for (const std::int64_t size : shape) declared *= static_cast<double>(size);
  double covered = 0;
  std::vector<const Part*> order;
  for (const Part& part : parts_) {
    double elements = 1;
    for (const Steps& steps : part.here) elements *= static_cast<double>(steps.count);
    covered += elements;
    order.push_back(&part);
  }
  std::sort(order.begin(), order.end(), [](const Part* one, const Part* other) {
    return one->here[0].start < other->here[0].start;
  });
  for (std::size_t one = 0; one < order.size(); ++one) {
    for (std::size_t next = one + 1;
         next < order.size() && order[next]->here[0].start <= order[one]->here[0].last(); ++next) {
      bool overlap = true;
      for (std::size_t axis = 0; overlap && axis < shape.size(); ++axis) {
        overlap = meet(order[one]->here[axis], order[next]->here[axis]);
      }
      if (!overlap) continue;
      fail(fmt::format("its sources \"{}\" and \"{}\" give the same elements",
                       printable(sources_[order[one]->source].named),
                       printable(sources_[order[next]->source].named)));
    }
  }
  if (covered == declared) return;
  fail(
      fmt::format("its shape is {}, {:.0f} elements, of which its sources give {:.0f} (HDF5 itself "
                  "would give fill values for the others)",
                  shape_text(shape), declared, covered));
}

void VirtualSources::check_part(const Part& part, const Hdf5Dataset& dataset) const {
  const Source& source = sources_[part.source];
  const auto refuse = [&](const std::string& what) {
    throw IoError(source.path, fmt::format("{}: {}; {} takes other elements of it",
                                           labelled("dataset", source.dataset), what, path_));
  };
  if (dataset.type().family == NumberFamily::Other) refuse("does not hold numbers");
  const std::vector<std::int64_t>& shape = dataset.shape();
  const std::string found = fmt::format("has the shape {}", shape_text(shape));
  if (!part.whole && part.fixed.size() != shape.size()) refuse(found);
  std::size_t moving = 0;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (part.whole ? shape[axis] == 1 : part.fixed[axis] >= 0) {
      if (!part.whole && part.fixed[axis] >= shape[axis]) refuse(found);
      continue;
    }
    if (moving == part.there.size() || part.there[moving].last() >= shape[axis]) refuse(found);
    if (part.whole && part.lengths[moving] != shape[axis]) refuse(found);
    ++moving;
  }
  if (moving != part.there.size()) refuse(found);
}

void VirtualSources::check_sources(const std::shared_ptr<ForeignReader>& foreign) {
  std::vector<std::vector<const Part*>> parts(sources_.size());
  for (const Part& part : parts_) parts[part.source].push_back(&part);
  for (std::size_t number = 0; number < sources_.size(); ++number) {
    const Source& source = sources_[number];
    const Hdf5File file = Hdf5File::open(source.path, foreign);
    const Hdf5Dataset dataset = file.dataset(source.dataset);
    for (const Part* part : parts[number]) check_part(*part, dataset);
    double elements = 1;
    for (const std::int64_t size : dataset.shape()) elements *= static_cast<double>(size);
    source_elements_ += elements;
  }
}

const Hdf5Dataset& VirtualSources::open(std::size_t number) {
  const auto found = std::find_if(opened_.begin(), opened_.end(), [&](const Opened& candidate) {
    return candidate.source == number;
  });
  if (found != opened_.end()) {
    opened_.splice(opened_.begin(), opened_, found);
    return *opened_.front().dataset;
  }
  const Source& source = sources_[number];
  auto file = std::make_unique<Hdf5File>(Hdf5File::open_again(source.path));
  if (file->file_bytes() != source.bytes) {
    throw IoError(source.path, fmt::format("the file has changed while it was in use: it had {} "
                                           "bytes and has {} now",
                                           source.bytes, file->file_bytes()));
  }
  std::int64_t cache = 0;
  {
    // Closed again: a dataset that is open keeps the cache that it was opened with.
    const Hdf5Dataset probe = file->dataset(source.dataset);
    for (const Part& part : parts_) {
      if (part.source == number) check_part(part, probe);
    }
    const std::int64_t chunk_bytes = probe.chunk_elements() * probe.type().bytes;
    if (chunk_bytes > 0) {
      cache = std::max(chunk_bytes, std::clamp(2 * chunk_bytes, smallest_cache, cache_of_sources));
    }
  }
  std::int64_t caches = cache;
  for (const Opened& other : opened_) caches += other.cache_bytes;
  while (!opened_.empty() && (opened_.size() >= most_open_sources || caches > cache_of_sources)) {
    caches -= opened_.back().cache_bytes;
    opened_.pop_back();
  }
  auto dataset = std::make_unique<Hdf5Dataset>(file->dataset(source.dataset, cache));
  opened_.push_front({number, cache, std::move(file), std::move(dataset)});
  return *opened_.front().dataset;
}

template <typename T>
void VirtualSources::read(std::span<const std::int64_t> first, std::span<const std::int64_t> count,
                          std::span<T> values) {
  std::int64_t done = 0;
  for (const Part& part : parts_) {
    const std::size_t rank = first.size();
    Hdf5Box target;
    std::vector<std::int64_t> skipped(rank);  // indices of the part before those that are wanted
    std::int64_t elements = 1;
    for (std::size_t axis = 0; elements > 0 && axis < rank; ++axis) {
      const Steps& steps = part.here[axis];
      const auto [begin, indices] = within(steps, first[axis], count[axis]);
      skipped[axis] = begin;
      target.first.push_back(steps.start + begin * steps.step - first[axis]);
      target.step.push_back(steps.step);
      target.count.push_back(indices);
      elements *= indices;
    }
    if (elements == 0) continue;
    const Hdf5Dataset& source = open(part.source);
    Hdf5Box origin;
    std::size_t moving = 0;
    for (std::size_t axis = 0; axis < source.shape().size(); ++axis) {
      const bool moves = part.whole ? source.shape()[axis] != 1 : part.fixed[axis] < 0;
      const auto here = moves ? static_cast<std::size_t>(part.moving[moving]) : 0;
      const Steps steps =
          moves ? part.there[moving++] : Steps{part.whole ? 0 : part.fixed[axis], 1, 1};
      origin.first.push_back(steps.start + (moves ? skipped[here] : 0) * steps.step);
      origin.step.push_back(steps.step);
      origin.count.push_back(moves ? target.count[here] : 1);
    }
    source.read_steps<T>(origin, count, target, values);
    done += elements;
  }
  expect(done == static_cast<std::int64_t>(values.size()),
         "the sources of a virtual dataset do not give all of it");
}

std::size_t VirtualSources::files() const {
  std::set<std::string> paths;
  for (const Source& source : sources_) paths.insert(source.path);
  return paths.size();
}

std::string VirtualSources::text() const {
  std::string text;
  for (const Source& source : sources_) {
    text += fmt::format("{} {} {} B\n", source.named, source.dataset, source.bytes);
  }
  const auto add = [&](const char* name, const std::vector<Steps>& along) {
    text += name;
    for (const Steps& steps : along) {
      text += fmt::format(" {}:{}:{}", steps.start, steps.step, steps.count);
    }
  };
  for (const Part& part : parts_) {
    text += fmt::format("source {}", part.source);
    add(" here", part.here);
    add(" there", part.there);
    text += fmt::format(" fixed {} whole {} {}\n", part.fixed, part.whole, part.lengths);
  }
  return text;
}

std::string VirtualSources::hash_of_chunk(bool last) {
  const auto end = [&](const Steps& steps) { return last ? -steps.last() : steps.start; };
  // The corner of all dimensions: the part that begins, or ends, furthest out along each of them.
  const auto further = [&](const Part& one, const Part& other) {
    return std::lexicographical_compare(
        one.here.begin(), one.here.end(), other.here.begin(), other.here.end(),
        [&](const Steps& left, const Steps& right) { return end(left) < end(right); });
  };
  const auto found = std::min_element(parts_.begin(), parts_.end(), further);
  return found == parts_.end() ? "none" : open(found->source).hash_of_chunk(last);
}

#define GARONNE_FOR_ELEMENT(T)                                                                     \
  template void VirtualSources::read(std::span<const std::int64_t>, std::span<const std::int64_t>, \
                                     std::span<T>);
GARONNE_FOR_ELEMENT(std::uint8_t)
GARONNE_FOR_ELEMENT(std::uint16_t)
GARONNE_FOR_ELEMENT(std::uint32_t)
GARONNE_FOR_ELEMENT(std::int32_t)
GARONNE_FOR_ELEMENT(std::int64_t)
GARONNE_FOR_ELEMENT(float)
GARONNE_FOR_ELEMENT(double)
#undef GARONNE_FOR_ELEMENT

}  // namespace garonne::data
