#include "data/fields/netcdf_axes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

namespace garonne::data {

std::vector<std::string> netcdf_names(const std::vector<std::string>& channels,
                                      const std::vector<std::string>& taken) {
  std::vector<std::string> names;
  const auto used = [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end() ||
           std::find(taken.begin(), taken.end(), name) != taken.end();
  };
  for (const std::string& channel : channels) {
    std::string name;
    for (const char letter : channel) {
      const bool plain = std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '_';
      name += plain ? letter : '_';
    }
    if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) != 0) {
      name.insert(0, "field_");
    }
    const std::string plain = name;
    for (int number = 2; used(name); ++number) name = fmt::format("{}_{}", plain, number);
    names.push_back(name);
  }
  return names;
}

std::vector<std::string> write_axes(Hdf5File& file, const std::string& group,
                                    const FieldDatasetInfo& fields) {
  std::vector<std::string> wanted;
  for (std::size_t axis = 0; axis < fields.points.size(); ++axis) {
    const bool named = axis < fields.axes.size() && !fields.axes[axis].empty();
    wanted.push_back(named ? fields.axes[axis] : fmt::format("axis_{}", axis));
    if (axis < fields.axis_texts.size()) wanted.back() = fields.axis_texts[axis].name;
  }
  const std::vector<std::string> names =
      netcdf_names(wanted, {"time", "lead", "realization", "valid_time", "forecast_period",
                            "finished", "source", "channel", "sample", "row_weight"});
  for (std::size_t axis = 0; axis < names.size(); ++axis) {
    const std::string path = group + names[axis];
    const bool known = axis < fields.coordinates.size() && !fields.coordinates[axis].empty();
    if (!known) {
      file.create_dimension(path, fields.points[axis]);
      continue;
    }
    const std::vector<double>& values = fields.coordinates[axis];
    const std::vector<std::int64_t> shape = {static_cast<std::int64_t>(values.size())};
    file.create_array<double>(path, shape).write<double>(0, values);
    file.make_scale(path);
    if (axis < fields.axis_texts.size()) {
      Hdf5Attributes attributes = file.attributes(path);
      for (const auto& [name, text] : fields.axis_texts[axis].attributes)
        attributes.write(name, text);
      continue;
    }
    const bool latitude = names[axis] == "latitude";
    if (!latitude && names[axis] != "longitude") continue;
    Hdf5Attributes attributes = file.attributes(path);
    attributes.write("standard_name", names[axis]);
    attributes.write("units", std::string(latitude ? "degrees_north" : "degrees_east"));
    attributes.write("axis", std::string(latitude ? "Y" : "X"));
  }
  return names;
}

std::string write_grid_mapping(Hdf5File& file, const GridMapping& mapping,
                               const std::vector<std::string>& taken) {
  if (mapping.name.empty()) return {};
  const std::string name = netcdf_names({mapping.name}, taken)[0];
  // The value means nothing.
  file.create_array<std::int32_t>(name, std::vector<std::int64_t>());
  Hdf5Attributes attributes = file.attributes(name);
  for (const auto& [key, text] : mapping.texts) attributes.write(key, text);
  for (const auto& [key, numbers] : mapping.numbers)
    attributes.write(key, std::span<const double>(numbers));
  return name;
}

void write_times(Hdf5File& file, const std::string& name, const std::vector<std::int64_t>& shape,
                 std::span<const double> seconds, Calendar calendar) {
  const std::vector<std::int64_t> origin(shape.size(), 0);
  file.create_array<double>(name, shape).write_box<double>(origin, shape, seconds);
  Hdf5Attributes attributes = file.attributes(name);
  attributes.write("units", std::string(seconds_units));
  attributes.write("calendar", std::string(calendar_name(calendar)));
}

void write_numbers(Hdf5File& file, const std::string& name, std::span<const std::int64_t> numbers) {
  const std::vector<std::int64_t> shape = {static_cast<std::int64_t>(numbers.size())};
  file.create_array<std::int64_t>(name, shape).write<std::int64_t>(0, numbers);
  file.make_scale(name);
}

void write_periods(Hdf5File& file, const std::string& name, const std::vector<std::int64_t>& shape,
                   std::span<const double> seconds) {
  const bool whole_hours = std::all_of(seconds.begin(), seconds.end(), [](double one) {
    return one / 3600 == std::floor(one / 3600);
  });
  std::vector<std::int64_t> values;
  for (const double one : seconds) values.push_back(std::llround(whole_hours ? one / 3600 : one));
  const std::vector<std::int64_t> origin(shape.size(), 0);
  file.create_array<std::int64_t>(name, shape).write_box<std::int64_t>(origin, shape, values);
  Hdf5Attributes attributes = file.attributes(name);
  attributes.write("standard_name", std::string("forecast_period"));
  attributes.write("units", std::string(whole_hours ? "hours" : "seconds"));
  // What tells xarray that it is a length of time.
  attributes.write("dtype", std::string("timedelta64[ns]"));
}

void write_leads(Hdf5File& file, const std::string& name, std::span<const std::int64_t> steps,
                 double step_seconds, const std::string& step_name) {
  const std::vector<std::int64_t> shape = {static_cast<std::int64_t>(steps.size())};
  if (step_seconds <= 0) {
    file.create_array<std::int64_t>(name, shape).write<std::int64_t>(0, steps);
    file.attributes(name).write("long_name", step_name);
    return;
  }
  std::vector<double> seconds;
  for (const std::int64_t step : steps) {
    seconds.push_back(static_cast<double>(step) * step_seconds);
  }
  write_periods(file, name, shape, seconds);
}

}  // namespace garonne::data
