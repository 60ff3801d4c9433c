// `garonne train --trace FILE`: a window of steps as they ran, on all ranks.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "dist/session.hpp"
#include "exec/executor.hpp"
#include "plan/program/program.hpp"
#include "plan/program/trace.hpp"

namespace garonne::train {

struct TraceRequest {
  std::string path;  // empty = nothing is traced
  // Of the window; 0 = the third that is run here, or the last where there are fewer.
  std::int64_t first_step = 0;
  std::int64_t steps = 3;
};

class StepTracer {
 public:
  // What one rank can gather from all.
  static constexpr std::int64_t usual_bytes = std::numeric_limits<int>::max();

  // `next_step`, `last_step`: the first and the last that are to be run here.
  StepTracer(TraceRequest wish, std::int64_t next_step, std::int64_t last_step,
             const plan::Program& program, std::int64_t most_bytes = usual_bytes);

  // After a step that began and ended then. At the end of the window rank 0 writes the file, of up
  // to 64 ranks; true then, also where that failed, or where there is too much. Collective over all
  // ranks.
  bool take(std::int64_t step, std::chrono::system_clock::time_point begin, double seconds,
            const exec::StepOutputs& outputs, dist::Session& session);
  // What there is where training ends within the window or before it. Collective; as take().
  bool finish(dist::Session& session);

  // What became of it, on rank 0, in words: a file, or why there is none.
  const std::string& outcome() const { return outcome_; }

 private:
  void write(dist::Session& session);

  TraceRequest wish_;
  const plan::Program& program_;
  std::int64_t most_bytes_;
  std::vector<plan::TracedStep> steps_;
  bool written_ = false;
  std::string outcome_;
};

}  // namespace garonne::train
