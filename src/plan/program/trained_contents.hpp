// Of replay: that what is trained is what lasts, also where it is brought from another tier for its
// update: every update changes what the step before has left, once, and is there at the end of the
// step.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "plan/program/program.hpp"

namespace garonne::plan {

// One pass over a Program. The functions answer with what is wrong, empty where nothing is. All ids
// that they are given are of the Program's tables, but for those of forget().
class TrainedContents {
 public:
  explicit TrainedContents(const Program& program);

  // The lasting buffer that has the numbers of `buffer` between steps; -1 where none has.
  int home(int buffer) const { return homes_[static_cast<std::size_t>(buffer)]; }

  // One buffer goes to another tier.
  std::string copy(int from, int to);
  // A piece is updated in `buffer`, which has its master, its compute copy or a state of it.
  std::string update(int buffer, int piece);
  // A compute copy of a piece is made anew in `buffer`, for the lasting one of the device.
  void remake(int buffer, int of, int piece);
  // Something else is made there, or it is given back.
  void forget(int buffer);
  // Behind the last instruction.
  std::string finish() const;

 private:
  struct Content {
    int home = -1;
    std::set<int> updated;  // pieces
  };
  const Content* content_of(int buffer) const;
  const std::string& name(int buffer) const;

  const Program& program_;
  std::vector<int> homes_;
  bool brings_ = false;              // what lasts elsewhere; else all updates are where it lasts
  std::map<int, Content> contents_;  // by buffer
};

}  // namespace garonne::plan
