// `garonne train --trace FILE`: a window of steps as they ran, on all ranks.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dist/session.hpp"
#include "exec/executor.hpp"
#include "plan/program/program.hpp"
#include "plan/program/trace.hpp"

namespace garonne::train {

struct TraceWish {
  std::string path;             // empty = nothing is traced
  std::int64_t first_step = 0;  // of the window; 0 = the third that is run here
  std::int64_t steps = 3;
};

class StepTracer {
 public:
  // `next_step`: the first that is run here.
  StepTracer(TraceWish wish, std::int64_t next_step, const plan::Program& program);

  // After a step that began and ended then. At the end of the window rank 0 writes the file, of up
  // to 64 ranks; true then. Collective over all ranks. Throws IoError on all of them.
  bool take(std::int64_t step, std::chrono::system_clock::time_point begin, double seconds,
            const exec::StepOutputs& outputs, dist::Session& session);
  // What there is where training ends within the window. Collective; as take().
  bool finish(dist::Session& session);

  const std::string& path() const { return wish_.path; }
  std::size_t traced() const { return steps_.size(); }

 private:
  void write(dist::Session& session);

  TraceWish wish_;
  const plan::Program& program_;
  std::vector<plan::TracedStep> steps_;
  bool written_ = false;
};

}  // namespace garonne::train
