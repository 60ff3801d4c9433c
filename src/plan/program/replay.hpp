// Replay: checks a Program and predicts its bytes and seconds, knowing nothing of how it was made.
// Shares no code with generators or solvers.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/device.hpp"
#include "base/error.hpp"
#include "plan/program/program.hpp"

namespace garonne::plan {

// Thrown for an illegal Program: which instruction, and what is wrong with it. Programs are made
// here, so it is nobody's error but ours; who reads one from a file says so.
class ReplayError : public Error {
 public:
  ReplayError(int instruction, const std::string& description, const std::string& reason);
  int instruction() const { return instruction_; }

 private:
  int instruction_;
};

using BytesByKind = std::array<std::int64_t, buffer_kinds>;

// Seconds that a rank does not compute, in replay of all ranks together.
struct WaitedSeconds {
  // For the links of its groups, where nobody else was late: blocking collectives, and what waits
  // for messages, reductions and gathers that are on their way.
  double tensor = 0;
  double data = 0;
  double pipeline = 0;
  double world = 0;
  double others = 0;  // for ranks that have not come so far
};

// What is in one tier of memory.
struct TierBytes {
  std::int64_t peak_bytes = 0;
  std::int64_t static_bytes = 0;  // live at start and at end
  int peak_instruction = -1;
  std::int64_t peak_transient_bytes = 0;
  BytesByKind peak_by_kind{};  // live by kind during the peak instruction, transients apart
  std::vector<std::int64_t> live_bytes;    // after each instruction
  std::vector<std::int64_t> during_bytes;  // peak during each instruction
};

// Of the device, where transients are, and of the tiers below it, which have the lists only where
// the Program has a buffer there.
struct Prediction : TierBytes {
  TierBytes host;
  TierBytes disk;
  double seconds = 0;
  double issue_seconds = 0;   // of the host, for all instructions
  double launch_seconds = 0;  // for which Compute stands still until the host issues what is next
  WaitedSeconds waited;

  const TierBytes& of(Tier tier) const {
    return tier == Tier::Device ? *this : tier == Tier::Host ? host : disk;
  }
};

// Replays one rank's Program, of a rotated one (rotated_step.hpp) a step that follows another one,
// and the whole step, whether that is legal; throws ReplayError when it is illegal. Bytes beyond
// the budget are not an error here (the caller compares peak and budget), everything else is.
Prediction replay(const Program& program);

// Replays the Programs of all ranks together: each one alone, then that collectives meet in the
// same order with the same bytes on every member of their group, that every message is received
// with its bytes, and that nobody waits in a circle. Seconds are those of the ranks together: who
// needs what another has not made yet waits. `programs[r]` is rank r's.
std::vector<Prediction> replay_together(const std::vector<Program>& programs);

// What the host does where its rank waits for a message of the pipeline, and where it loads a
// micro-batch: it may wait until the device is through with all before.
enum class HostIssue { Ahead, Waits };

// What goes on beside what a rank computes. Where something does not, Compute stands still from
// when it is issued until it has ended; Programs and bytes are the same.
struct Overlap {
  HostIssue host = HostIssue::Ahead;
  bool reductions = true;   // sums of gradients over ranks, but tensor ranks
  bool collectives = true;  // sums over tensor ranks, and what passes exchange beside others
  bool copies = true;       // between tiers
};

// The stages of one pipeline of a grid, in their order, as if the other pipelines kept step with
// them: collectives over other axes meet at once.
std::vector<Prediction> replay_pipeline(std::vector<Program> stages, const Overlap& overlap = {});

// For transports without tags: throws ReplayError where the messages of a lane (PipelinePlace) are
// received in another order than they are sent in. Ranks are those of the Programs.
void check_lanes(const std::vector<Program>& programs, int lane_numbers);

}  // namespace garonne::plan
