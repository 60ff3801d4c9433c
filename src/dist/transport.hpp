// Transports: collectives and messages between the ranks of one group, asynchronous and on buffers
// that the caller owns.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dist/communication_thread.hpp"

namespace garonne::device {
class CudaRuntime;
class Device;
class FinishingBlocks;
}  // namespace garonne::device

namespace garonne::dist {

struct SumOrder;

enum class ScalarType { Float32, Float64, BFloat16 };

constexpr std::int64_t scalar_bytes(ScalarType type) {
  return type == ScalarType::BFloat16 ? 2 : type == ScalarType::Float32 ? 4 : 8;
}

// In what the numbers of a sum are kept in memory, and in what they travel: the same, or BFloat16
// of what is kept in Float32. Where the wire is BFloat16 each member's number is rounded to it
// once, its own, too, and they are added in Float32.
struct SumType {
  // NOLINTNEXTLINE(google-explicit-constructor): most sums travel as they are kept
  constexpr SumType(ScalarType type) : kept(type), wire(type) {}
  constexpr SumType(ScalarType in_memory, ScalarType travels) : kept(in_memory), wire(travels) {}

  ScalarType kept;
  ScalarType wire;

  bool narrows() const { return kept != wire; }
};

inline constexpr int most_tag = 32767;  // of a message

// One rank's end of one group. Every operation returns at once; its buffers belong to the transport
// until wait() has returned. What is collective is submitted by all members, with equal arguments
// (but for the addresses), in the same order as all other collectives of these ranks, on whichever
// transport. Any number of elements is allowed, none included. Errors of the wire are
// CommunicationErrors; a transport that has had one is of no further use.
//
// "Pieces" are those of base/collective_bytes.hpp: member m owns elements
// piece_begin(m)..piece_end(m).
class Transport {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  virtual std::string_view name() const = 0;
  // Global ranks, in order; at least one.
  const std::vector<int>& members() const { return members_; }
  // Index of this rank among them.
  int member() const { return member_; }
  int size() const { return static_cast<int>(members_.size()); }
  // Whether buffers are of the device or of the host. Where they are the device's, all members are
  // called by the thread that puts work on its lanes: an operation forks from Compute when it is
  // submitted, as what is put on a lane does, and joins it at wait().
  virtual bool on_device() const { return false; }
  // Of all_reduce_sum and reduce_scatter_sum.
  virtual SumOrder sum_order() const;

  // In place: data[elements] becomes the sum over the members in the order of sum_order(), for most
  // transports ((g0 + g1) + g2) + ..., so its bits are equal on all members and independent of
  // sizes and timing. The sum is gathered in the type of the wire: it is rounded to BFloat16 once
  // where that is it. `staging` holds
  // all_reduce_staging_bytes(elements, scalar_bytes(type.kept), size()) bytes, and may be null for
  // zero. InternalError for a type that is none of a sum. Collective over the group.
  virtual Ticket all_reduce_sum(void* data, std::int64_t elements, SumType type, void* staging) = 0;

  // In place: this member's own piece of data[elements] becomes the sum over the members, as above,
  // rounded to the type that it is kept in only; the other pieces keep what they hold. `staging` as
  // above. Collective over the group.
  virtual Ticket reduce_scatter_sum(void* data, std::int64_t elements, SumType type,
                                    void* staging) = 0;

  // In place: of data[elements], each of element_bytes, every member brings its own piece and gets
  // the others'. Collective over the group.
  virtual Ticket all_gather(void* data, std::int64_t elements, std::int64_t element_bytes) = 0;

  // The bytes of member `root`, to all. Collective over the group.
  virtual Ticket broadcast(void* data, std::int64_t bytes, int root) = 0;

  // To and from one other member (an index into members()); a send meets the receive with the same
  // tag (from 0 to 32767) and the same number of bytes, in order of submission.
  virtual Ticket send(const void* data, std::int64_t bytes, int to, int tag) = 0;
  virtual Ticket receive(void* data, std::int64_t bytes, int from, int tag) = 0;

  // Host transports: blocks until the operation is complete here. Device transports: what is put on
  // the compute stream from now on runs after the operation; the host goes on.
  virtual void wait(Ticket ticket) = 0;
  // Whether the operation is complete.
  virtual bool done(Ticket ticket) = 0;

  // Whether operations can be recorded in a graph (device/captures.hpp), to be carried out with it.
  // Of others the five below are InternalErrors. They are called by all members at the same points,
  // and members whose operations meet have graphs of one recording.
  virtual bool can_be_recorded() const { return false; }
  // Before a capture begins: waits until nothing is under way here. What is submitted from then on
  // is recorded; nothing is done() meanwhile.
  virtual void begin_recording();
  // Before the capture ends: what was recorded joins Compute.
  virtual void end_recording();
  // After a capture that was given up.
  virtual void drop_recording();
  // A graph is carried out from here to end_replay(). Where other members are waited for longer
  // than the limit and `own_seconds`, which the work in it takes, that is a CommunicationError with
  // the activity: of end_replay(), or the end of all ranks where it does not come to that.
  virtual void begin_replay(const std::string& activity, double own_seconds);
  virtual void end_replay();

 protected:
  // Throws InternalError unless `rank` is one of the distinct members.
  Transport(std::vector<int> members, int rank);
  static void expect_sum_type(SumType type);

 private:
  std::vector<int> members_;
  int member_ = 0;
};

// Messages from one member to another (indices into members()) whose tags are `number` modulo
// TransportOptions::lanes.
struct MessageLane {
  int from = 0;
  int to = 0;
  int number = 0;
};

// What transports between buffers of a device work with. All of it outlives them.
struct DeviceSide {
  device::Device* device = nullptr;
  // For "mpi": what is under way lies in blocks of the device's host tier, which all transports of
  // the process have from here. What that takes at once is all_reduce_staging_bytes beside the data
  // of a sum, and the data of all else.
  device::FinishingBlocks* pinned = nullptr;
  // For "nccl": the runtime, and the device by its number among the visible ones.
  device::CudaRuntime* runtime = nullptr;
  int ordinal = 0;
};

struct TransportOptions {
  // How errors and logs call the group.
  std::string name = "a group";
  // For "nccl": what a wait for other members may last before it is an error (run.timeout); 0 = for
  // ever. Waits over MPI have the session's limit.
  double limit_seconds = 0;
  // Null: buffers are the host's. "nccl" needs one.
  const DeviceSide* side = nullptr;
  // NCCL has no tags: what one member sends to another is received in the order of sending, and
  // what is under way holds up what comes after it. So messages that must not wait for each other,
  // as those to and fro, go in lanes, each with a communicator and a stream of its own. Equal on
  // all members. Without any, messages keep the order of submission, collectives included.
  int lanes = 1;
  std::vector<MessageLane> message_lanes = {};
};

// "self", "mpi", "nccl".
std::vector<std::string> transport_names();

// The end of this rank of the group `members` (global ranks, in the order of the sums). "self" is
// for groups of one, and is what "mpi" and "nccl" give for them. Throws ConfigError for a name that
// is not known and for "nccl" where two members have one device, NotBuiltError for "nccl" in a
// build without it. `thread` outlives the transport. Collective over the group: a rank that makes
// several transports makes them in an order that all ranks agree on.
std::unique_ptr<Transport> make_transport(std::string_view name, Session& session,
                                          CommunicationThread& thread, std::vector<int> members,
                                          const TransportOptions& options = {});

}  // namespace garonne::dist
