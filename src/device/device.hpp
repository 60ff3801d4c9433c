// A device as the runtime sees it: lanes that carry work beside each other, marks that say how far
// a lane has come, and copies between tiers of memory.
//
// Order. Compute is the spine. What is put on another lane *forks*: it starts after everything that
// was put on Compute before it, after what its own lane was given before, after the marks in its
// `after` list, and after nothing else. It *joins* only where somebody waits for it: with
// order(Compute, mark) later work on Compute follows it, wait(mark) holds the host.
//
// All there is to know about memory follows from that:
// - Until work on a lane was joined, nobody on Compute writes or frees what it reads, and nobody
//   reads, writes or frees what it writes. Work on a third lane may follow it by `after`.
// - Freed, on the host, means that later work on Compute may overwrite. Work on another lane that
//   is given the same address forks after the free, so it follows every use of the old block.
//   Blocks may be handed out again at once, and addresses may be fixed ahead.
// - Bytes never depend on timing: what a piece of work captured is gone before its mark is reached.
//
// Failure. What a piece of work throws ends the device: nothing more is carried out, and every
// wait, order and done throws it as a LaneError with the lane and the name of the activity. Where
// the lane is the calling thread, `run` throws it as it is. A wait of more than the device's limit
// throws a LaneError, with what the lane was at.
//
// One thread puts work on the lanes. What a lane uses (memory, files, what functions refer to) must
// outlive the device or have been waited for. Destroying a device ends what is under way on its
// lanes and drops the rest without carrying it out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/device.hpp"

namespace garonne::device {

// Everything that was put on the lane up to here. Number 0 is before everything: always reached.
struct Mark {
  Lane lane = Lane::Compute;
  std::uint64_t number = 0;

  friend bool operator==(const Mark&, const Mark&) = default;
};

// Memory of one tier, owned by somebody else. Files are no spans: a function on a disk lane has
// them.
struct Span {
  Tier tier = Tier::Device;
  std::byte* data = nullptr;
  std::int64_t bytes = 0;
};

// What there is for all processes on the device and what of it nobody has taken, in bytes of the
// device tier.
struct MemoryFacts {
  std::int64_t total_bytes = 0;
  std::int64_t free_bytes = 0;
};

class ThreadCopies;  // device/thread_copies.hpp

class Device {
 public:
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  virtual DeviceKind kind() const = 0;
  virtual MemoryFacts memory() const = 0;

  // What kernels on the lane take first, with the lane's own stream where it has one. Lanes other
  // than Compute have one thread: a second pool of threads would start where theirs forks.
  virtual Queue queue(Lane lane) const = 0;

  // The spans have equal sizes and share no bytes. CopyOut goes from Device to Host, CopyIn from
  // Host to Device; Compute copies within Device and HostCompute within Host. `activity` names it
  // in errors: instruction, buffer, micro-batch.
  Mark copy(Lane lane, Span to, Span from, std::string activity, std::span<const Mark> after = {});

  // The same by the calling thread, now, and as long as it takes on the lane: for work of a lane
  // that finds out only there what it copies. Of devices whose memory the host reaches.
  virtual void copy_here(Lane lane, Span to, Span from);

  // How work of a lane that is a thread copies from and to memory of the device that the host does
  // not reach. The lane's own; asked for by the thread that puts work. InternalError for other
  // devices, and for lanes that are no threads.
  virtual ThreadCopies& thread_copies(Lane lane);

  // Host work in the order of the lane: an optimizer step, a read of a file. It may throw. On lanes
  // other than Compute it uses no pool of threads.
  Mark run(Lane lane, std::function<void()> work, std::string activity,
           std::span<const Mark> after = {});

  // What was put into the lane's queue since the last call was part of `activity`: where the device
  // did not take it, LaneError says so by that name. Gives the mark after it.
  virtual Mark launched(Lane lane, const std::string& activity) = 0;

  // What was put on the lane so far. Costs nothing, or the record of an event.
  virtual Mark mark(Lane lane) = 0;

  // What is put on `later` from now on starts after `earlier`. Holds the host only where it is
  // itself the lane, or where a stream of the device cannot wait for a thread of the host.
  virtual void order(Lane later, Mark earlier) = 0;

  // Holds the host until the mark is reached.
  virtual void wait(Mark mark) = 0;

  // Whether wait would return at once.
  virtual bool done(Mark mark) = 0;

  // A mark whose moment is remembered. It forks as work does, so that one just before a copy and
  // one just after it have the seconds of the copy between them.
  virtual Mark timed_mark(Lane lane) = 0;

  // Between two timed marks that are reached; InternalError for others.
  virtual double seconds(Mark from, Mark to) const = 0;

  // Forgets the moments of all timed marks so far that are reached.
  virtual void forget_times() = 0;

  // For who leaves with an exception what lanes use: carries out all that was put, as far as
  // nothing fails, and ends the lanes. Nothing may be put afterwards.
  virtual void end() noexcept = 0;

 protected:
  Device() = default;

 private:
  // `copy` and `run` after their arguments were found to be right.
  virtual Mark put_copy(Lane lane, Span to, Span from, std::string activity,
                        std::span<const Mark> after) = 0;
  virtual Mark put_run(Lane lane, std::function<void()> work, std::string activity,
                       std::span<const Mark> after) = 0;
};

}  // namespace garonne::device
