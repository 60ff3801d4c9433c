// Units of channels by the names that reanalyses have them under. For the sources of this room.
#pragma once

#include <string>

namespace garonne::data {

// Of makani's names of ERA5's variables ("t2m", "z500", "tcwv") and of what shallow water has
// ("geopotential", "vorticity", "divergence"), as ECMWF's parameter database has them; empty for
// any other name.
std::string usual_units(const std::string& channel);

// Whether two texts may mean the same units: the same symbols to the same powers, however they are
// put ("m/s", "m s**-1", "m s-1"), some by several names ("K", "kelvin"). An empty text, of a file
// that says nothing, may mean any.
bool same_units(const std::string& one, const std::string& other);

}  // namespace garonne::data
