// Several choices for each of many things, of which all together are to have room: what they cost
// at least, by the linear relaxation of that knapsack.
#pragma once

#include <vector>

namespace garonne::plan {

struct BytesChoice {
  double bytes;
  double seconds;
};

class ChoiceRelaxation {
 public:
  // Of one thing; not empty.
  void add(std::vector<BytesChoice> choices);
  // Seconds of all things within so many bytes; where even the least bytes are more, the seconds of
  // those.
  double least_seconds(double room);

 private:
  struct Step {
    double bytes;
    double saves;
  };

  double seconds_of_least_bytes_ = 0;
  double least_bytes_ = 0;
  std::vector<Step> steps_;
};

}  // namespace garonne::plan
