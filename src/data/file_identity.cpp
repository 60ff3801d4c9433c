#include "data/file_identity.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <set>

#include "base/hash.hpp"
#include "data/hdf5/hdf5.hpp"
#include "data/layouts/field_layout.hpp"
#include "data/tokens/foreign_tokens.hpp"
#include "data/tokens/token_file.hpp"
#include "data/zarr/zarr_store.hpp"

namespace garonne::data {
namespace {

// Half of what hash_text makes: enough against accidents, and short enough to be read.
std::string short_hash(const std::string& text) {
  return hash_text(text).substr(0, 16);
}

std::string text_of(const FieldPlace& place) {
  std::string text = fmt::format(
      "{} in {} of source {} from frame {}: axes {} {} {} constant {} scale {} offset {} missing "
      "{} within {} {} fixed",
      place.channel, place.dataset, place.source, place.first_frame, place.trajectory_axis,
      place.frame_axis, place.space_axis, place.constant, place.scale, place.offset, place.missing,
      place.least, place.greatest);
  for (const auto& [axis, index] : place.fixed) text += fmt::format(" {} {}", axis, index);
  if (place.wrap != 0) text += fmt::format(" wrap {}", place.wrap);
  return text + "\n";
}

// As they are in memory: a year of hours takes its time to be written out.
std::string bytes_of(const std::vector<double>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)};
}

std::string text_of(const FieldFile& file) {
  std::string text;
  for (const auto* places : {&file.channels, &file.targets}) {
    for (const FieldPlace& place : *places) text += text_of(place);
  }
  text += fmt::format("points {} axes {} grid {} trajectories {} groups {} frames {} run {}\n",
                      file.points, file.axes, file.grid, file.trajectories, file.groups,
                      file.frames, file.run_length);
  text += fmt::format("dated {} calendar {} every {} invalid {}\n", file.dated,
                      static_cast<int>(file.calendar), file.frame_seconds, file.invalid);
  for (const auto& values : file.coordinates) text += bytes_of(values);
  return text + bytes_of(file.times);
}

std::set<std::string> datasets_in(const FieldFile& file, std::size_t source) {
  std::set<std::string> names;
  for (const auto* places : {&file.channels, &file.targets}) {
    for (const FieldPlace& place : *places) {
      if (place.source != source) continue;
      if (file.groups.empty()) {
        names.insert(place.dataset);
      } else {
        names.insert(file.groups.front() + "/" + place.dataset);
        names.insert(file.groups.back() + "/" + place.dataset);
      }
    }
  }
  return names;
}

}  // namespace

FileIdentity identify_file(const Hdf5File& file, const std::vector<std::string>& datasets,
                           const std::string& understood) {
  std::string header = understood;
  std::string attributes = file.attributes("/").stored_text();
  std::string first;
  std::string last;
  for (const std::string& name : datasets) {
    const Hdf5Dataset dataset = file.dataset(name, VirtualData::Allowed);
    header += fmt::format("{}: {}\n", name, dataset.header_text());
    attributes += file.attributes(name).stored_text();
    first += dataset.hash_of_chunk(/*last=*/false);
    last += dataset.hash_of_chunk(/*last=*/true);
  }
  return {file.path(),
          fmt::format("{} B, header {}, attributes {}, first chunks {}, last chunks {}",
                      file.file_bytes(), short_hash(header), short_hash(attributes),
                      short_hash(first), short_hash(last))};
}

namespace {

// Of a store by its metadata and the ends of its arrays.
FileIdentity identify_store(const std::string& path, const std::set<std::string>& names,
                            const std::string& understood) {
  const ZarrStore store = ZarrStore::open(path);
  std::string header = understood;
  std::string first;
  std::string last;
  for (const std::string& name : names) {
    const ZarrArrayInfo& info = store.array(name);
    header += fmt::format("{}: {} {}\n", name, info.metadata, info.attributes.dump());
    first += short_hash(store.stored_chunk(name, /*last=*/false));
    last += short_hash(store.stored_chunk(name, /*last=*/true));
  }
  return {path, fmt::format("{} B of metadata, header {}, first chunks {}, last chunks {}",
                            store.metadata_bytes(), short_hash(header), short_hash(first),
                            short_hash(last))};
}

}  // namespace

FileIdentity identify_token_file(const std::string& path) {
  if (const auto foreign = find_foreign_tokens(path)) return {path, identity_of(*foreign)};
  const Hdf5File file = Hdf5File::open_again(path);
  std::vector<std::string> datasets = {training_dataset};
  if (file.has_dataset(validation_dataset)) datasets.emplace_back(validation_dataset);
  return identify_file(file, datasets);
}

std::vector<FileIdentity> identify_field_files(const std::vector<FieldFile>& files) {
  // Joined files may lie in one source several times.
  struct Part {
    std::set<std::string> datasets;
    std::string understood;
  };
  std::vector<std::string> paths;
  std::map<std::string, Part> parts;
  for (const FieldFile& file : files) {
    const std::string understood = short_hash(text_of(file));
    for (std::size_t source = 0; source < file.sources.size(); ++source) {
      const std::string& path = file.sources[source].path;
      const auto [place, is_new] = parts.try_emplace(path);
      if (is_new) paths.push_back(path);
      place->second.datasets.merge(datasets_in(file, source));
      place->second.understood += understood;
    }
  }
  std::vector<FileIdentity> identities;
  for (const std::string& path : paths) {
    const Part& part = parts.at(path);
    if (ZarrStore::is_store(path)) {
      identities.push_back(identify_store(path, part.datasets, part.understood));
      continue;
    }
    identities.push_back(identify_file(
        Hdf5File::open_again(path), {part.datasets.begin(), part.datasets.end()}, part.understood));
  }
  return identities;
}

dist::Facts file_facts(const std::string& key, const std::vector<FileIdentity>& files) {
  const dist::Remedy remedy = dist::advise("give every rank a copy of the same file");
  if (files.size() == 1) return {{key, files[0].contents, remedy, files[0].path}};
  dist::Facts facts = {{key, fmt::format("{} files", files.size()), remedy, ""}};
  for (std::size_t number = 0; number < files.size(); ++number) {
    facts.push_back({fmt::format("{}, file {}", key, number + 1), files[number].contents, remedy,
                     files[number].path});
  }
  return facts;
}

}  // namespace garonne::data
