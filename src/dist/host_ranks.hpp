// The other ranks on this host, as the system shows their processes: what a rank can know of them
// while it cannot ask them. For the room's own use.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "dist/launcher.hpp"

namespace garonne::dist {

struct HostRank {
  int rank = 0;
  pid_t process = 0;
  // Awake also where it sleeps or waits for messages; Busy in a call that nothing interrupts, as of
  // a file system that does not answer, or held by a debugger.
  enum class State { Awake, Busy, Stopped } state = State::Awake;
};

// Ascending by rank, without this one; those that one launcher started together: they have its
// variable of the rank in their environment, and the name of the job or, where it leaves none, the
// parent in common with this process. Of a rank of several processes it is the most hindered one,
// the lowest of such. Who cannot be looked at is left out.
std::vector<HostRank> host_ranks(const Launcher& launcher,
                                 const std::filesystem::path& processes = "/proc");

}  // namespace garonne::dist
