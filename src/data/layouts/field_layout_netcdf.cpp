// netCDF-4 files, read as the HDF5 that they are (data/layouts/cf_source.hpp).
#include "data/layouts/cf_source.hpp"
#include "data/layouts/field_layout.hpp"

namespace garonne::data {
namespace {

class NetcdfSource final : public CfSource {
 public:
  explicit NetcdfSource(const Hdf5File& file) : file_(file) {}

  const std::string& path() const override { return file_.path(); }
  std::vector<std::string> names() const override { return file_.datasets(); }
  bool has(const std::string& name) const override {
    return file_.has_dataset(name) && file_.dataset(name).shape().size() == 1;
  }
  std::vector<std::string> dimensions(const std::string& name) const override {
    return file_.dimension_scales(name);
  }
  std::string text(const std::string& name, const char* attribute) const override {
    const Hdf5Attributes attributes = file_.attributes(name);
    // A number where a text is usual is not what tells a dimension.
    if (!attributes.has_text(attribute)) return "";
    const std::vector<std::string> texts = attributes.texts(attribute);
    return texts.empty() ? "" : texts[0];
  }
  std::vector<double> numbers(const std::string& name, const char* attribute) const override {
    const Hdf5Attributes attributes = file_.attributes(name);
    return attributes.has(attribute) ? attributes.numbers(attribute) : std::vector<double>();
  }
  CfArray array(const std::string& name, std::size_t rank,
                const std::string& expected) const override {
    const Hdf5Dataset dataset = open_array(file_, name, rank, expected);
    return {dataset.shape(), dataset.type(), storage_text(dataset), std::nullopt};
  }
  std::vector<double> line(const std::string& name) const override {
    return read_line(file_, name);
  }

 private:
  const Hdf5File& file_;
};

bool recognises(const Hdf5File& file) {
  for (const std::string& name : file.datasets()) {
    if (!file.dimension_scales(name).empty()) return true;
  }
  return false;
}

FieldFile describe(const Hdf5File& file) {
  return describe_cf(NetcdfSource(file));
}

}  // namespace

const FieldLayout& netcdf_layout() {
  static const FieldLayout layout = {"netcdf",
                                     "netCDF-4: variables (time, [level,] latitude, longitude)",
                                     recognises,
                                     describe,
                                     /*continues=*/false,
                                     /*joins=*/true};
  return layout;
}

}  // namespace garonne::data
