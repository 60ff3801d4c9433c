// The cost table of a machine, as it is kept between runs.
#pragma once

#include <functional>
#include <string>

#include "plan/model/cost_table.hpp"

namespace garonne::exec {

// Processor, threads and versions: a table measured on another machine text is stale here.
std::string machine_text(int threads);
// The same for a GPU: its name and versions.
std::string gpu_machine_text(const std::string& name);

// Where the table of a machine text is kept, in the cache folder.
std::string cost_table_path(const std::string& machine);

// The cached table of a machine text, or an empty one when there is none. `warn` is told, in a
// sentence, of a table that is not understood and of a folder that is not used.
plan::CostTable load_cached_costs(const std::string& machine,
                                  const std::function<void(const std::string&)>& warn);
// That of this machine's processor.
plan::CostTable load_cached_costs(int threads, const std::function<void(const std::string&)>& warn);
// A cache that cannot be written is no error: returns false.
bool save_cached_costs(const plan::CostTable& table);

}  // namespace garonne::exec
