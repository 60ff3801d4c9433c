// Where what lasts from step to step is between steps.
#pragma once

#include <string>
#include <vector>

#include "base/device.hpp"
#include "plan/program/program.hpp"

namespace garonne::plan {

// By buffer: the lasting one whose content it has. Itself where it lasts; of a buffer that copies
// bring from a lasting one of another tier, and of one for which a lasting one stands in on the
// host all the time, that one; -1 of all others. The Program need not be legal.
std::vector<int> lasting_homes(const Program& program);

// What a buffer of the device is called on a tier below: "<name>@<tier>".
std::string name_below(const std::string& name, Tier tier);

// What a buffer is called on the device, wherever it is.
std::string name_on_device(const Buffer& buffer);

}  // namespace garonne::plan
