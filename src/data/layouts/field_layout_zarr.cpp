// Zarr stores as xarray writes them, WeatherBench 2's among them: arrays with CF's attributes
// (data/layouts/cf_source.hpp), in which longitude may come before latitude.
#include <fmt/format.h>

#include <cmath>

#include "base/error.hpp"
#include "base/printable.hpp"
#include "data/layouts/cf_source.hpp"
#include "data/layouts/field_layout.hpp"
#include "data/zarr/zarr_store.hpp"

namespace garonne::data {
namespace {

class ZarrSource final : public CfSource {
 public:
  explicit ZarrSource(ZarrStore& store) : store_(store) {}

  const std::string& path() const override { return store_.path(); }
  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, info] : store_.arrays()) names.push_back(name);
    return names;
  }
  bool has(const std::string& name) const override {
    const auto found = store_.arrays().find(name);
    return found != store_.arrays().end() && found->second.shape.size() == 1;
  }
  std::vector<std::string> dimensions(const std::string& name) const override {
    return store_.array(name).dimensions();
  }
  std::string text(const std::string& name, const char* attribute) const override {
    const auto found = store_.arrays().find(name);
    if (found == store_.arrays().end()) return "";  // a dimension without coordinates
    const auto value = found->second.attributes.find(attribute);
    const bool there = value != found->second.attributes.end() && value->is_string();
    return there ? value->get<std::string>() : "";
  }
  std::vector<double> numbers(const std::string& name, const char* attribute) const override {
    const nlohmann::json& attributes = store_.array(name).attributes;
    const auto value = attributes.find(attribute);
    std::vector<double> numbers;
    if (value == attributes.end()) return numbers;
    for (const auto& one : value->is_array() ? *value : nlohmann::json::array({*value})) {
      if (one.is_number()) numbers.push_back(one.get<double>());
    }
    return numbers;
  }
  CfArray array(const std::string& name, std::size_t rank,
                const std::string& expected) const override {
    const ZarrArrayInfo& info = store_.array(name);
    const auto refuse = [&](const std::string& what) {
      throw IoError(path(), fmt::format("array \"{}\": {}", printable(name), what));
    };
    if (info.shape.size() != rank) {
      refuse(fmt::format("has {} dimensions, {}, where {} are expected, {}", info.shape.size(),
                         shape_text(info.shape), rank, expected));
    }
    if (info.type.family == NumberFamily::Other) refuse("holds no numbers");
    for (const std::int64_t size : info.shape) {
      if (size < 1) refuse(fmt::format("is empty: {}", shape_text(info.shape)));
    }
    const char* family = info.type.family == NumberFamily::Floating   ? "float"
                         : info.type.family == NumberFamily::Unsigned ? "uint"
                                                                      : "int";
    CfArray array{info.shape, info.type,
                  fmt::format("{}{}, chunks {}, {}", family, 8 * info.type.bytes,
                              shape_text(info.chunk), info.codec.name),
                  std::nullopt};
    // As xarray takes it; NaN is no value anyway.
    if (info.fill && std::isfinite(*info.fill)) array.fill = info.fill;
    return array;
  }
  std::vector<double> line(const std::string& name) const override {
    const ZarrArrayInfo& info = store_.array(name);
    if (info.shape.size() != 1 || info.shape[0] == 0) {
      throw IoError(path(), fmt::format("array \"{}\" is no list of numbers: {}", printable(name),
                                        shape_text(info.shape)));
    }
    return store_.read_all<double>(name, most_coordinates);
  }
  bool transposes() const override { return true; }

 private:
  ZarrStore& store_;
};

bool recognises(const Hdf5File&) {
  return false;
}

FieldFile describe(const Hdf5File& file) {
  throw IoError(file.path(), "is no Zarr store, which is a folder");
}

}  // namespace

FieldFile describe_zarr(const std::string& path, const std::string& layout) {
  if (layout != "auto" && layout != "zarr") {
    throw ConfigError("data.layout", layout,
                      fmt::format("{} is a Zarr store: give auto or zarr", path));
  }
  ZarrStore store = ZarrStore::open(path);
  FieldFile described = describe_cf(ZarrSource(store));
  described.sources = {{path, store.metadata_bytes(), true}};
  return described;
}

const FieldLayout& zarr_layout() {
  static const FieldLayout layout = {"zarr",
                                     "Zarr version 2, a folder: arrays (time, [level,] latitude, "
                                     "longitude) as xarray and WeatherBench 2 have them",
                                     recognises,
                                     describe,
                                     /*continues=*/true,
                                     /*joins=*/true};
  return layout;
}

}  // namespace garonne::data
