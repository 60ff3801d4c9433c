// What keys of the configuration may be by the registries of all rooms.
#pragma once

#include "base/config.hpp"

namespace garonne::train {

// For config_keys, load_config and parse_config.
Choices config_choices();

}  // namespace garonne::train
