// Units of channels by the names that reanalyses have them under. For the sources of this room.
#pragma once

#include <string>

namespace garonne::data {

// Of makani's names of ERA5's variables ("t2m", "z500", "tcwv") and of what shallow water has
// ("geopotential", "vorticity", "divergence"), as ECMWF's parameter database has them; empty for
// any other name.
std::string usual_units(const std::string& channel);

// Whether two units of files are the same one in other spellings: "m s**-1", "m s-1" and "m/s",
// "kelvin" and "K". Units of one quantity in other sizes, "Pa" and "hPa", are not.
bool same_units(const std::string& one, const std::string& other);

}  // namespace garonne::data
