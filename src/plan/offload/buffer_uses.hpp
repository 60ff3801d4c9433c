// When a Program uses a buffer, and when that is idle.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/program/program.hpp"

namespace garonne::plan {

// Places of the list from one that uses a buffer to the one behind which it is idle; what another
// lane does with it lasts until its Wait.
struct Use {
  int begin = -1;
  int end = -1;
  int changed_at = -1;  // behind it the buffer has what the use leaves in it; -1 = as it was
  bool makes = false;   // it is not there before
  bool frees = false;   // nor behind
};

// By buffer of `buffers`, in order; those without a place between them are one. The Program is
// legal.
std::vector<std::vector<Use>> uses_of(const Program& program, const std::vector<int>& buffers);

// Adds the bytes of a buffer, `sign` times, wherever in the list it is there: everywhere where it
// lasts, else from where it is made to where it is freed.
void add_live_bytes(const Buffer& buffer, const std::vector<Use>& uses, std::int64_t sign,
                    std::vector<std::int64_t>& bytes);

}  // namespace garonne::plan
