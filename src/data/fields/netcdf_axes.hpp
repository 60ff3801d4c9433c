// What all files that Garonne writes for readers of netCDF-4 have alike: names, axes and times. For
// the sources of this room.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/fields/field_dataset.hpp"
#include "data/hdf5/hdf5.hpp"

namespace garonne::data {

// Names for variables of these channels: a letter first, then letters, digits and _; none twice and
// none of those that are taken.
std::vector<std::string> netcdf_names(const std::vector<std::string>& channels,
                                      const std::vector<std::string>& taken);

// The dimensions of the points of fields, as scales in `group` ("" = the root, else with a slash at
// its end) of a file that is being made: coordinates with CF's attributes, those of a projection or
// a rotated pole with the names and attributes that the data have, or a dimension without values
// where there are none. Returns their names, without the group.
std::vector<std::string> write_axes(Hdf5File& file, const std::string& group,
                                    const FieldDatasetInfo& fields);

// The variable of a grid mapping, with its attributes, under a name that is not taken. Returns
// that; empty where there is no mapping.
std::string write_grid_mapping(Hdf5File& file, const GridMapping& mapping,
                               const std::vector<std::string>& taken);

// An array of times, seconds since 1970 of the calendar.
void write_times(Hdf5File& file, const std::string& name, const std::vector<std::int64_t>& shape,
                 std::span<const double> seconds, Calendar calendar);

// A list of whole numbers that is its own scale.
void write_numbers(Hdf5File& file, const std::string& name, std::span<const std::int64_t> numbers);

// Lengths of time from a state to a forecast of it, as CF's forecast_period: in hours where all are
// whole ones, else in seconds.
void write_periods(Hdf5File& file, const std::string& name, const std::vector<std::int64_t>& shape,
                   std::span<const double> seconds);

// Leads, 1 … `leads` steps of `step_seconds`, as CF's forecast_period, as a scale or a plain
// array; 0 seconds = the steps themselves, for which `step_name` is what they are.
void write_leads(Hdf5File& file, const std::string& name, std::span<const std::int64_t> steps,
                 double step_seconds, const std::string& step_name = "steps of the model");

}  // namespace garonne::data
